// SPDX-License-Identifier: Apache-2.0
//
// The module attnkit._core: the list of its functions, and the functions that return facts about
// the library. Python passes arguments to these functions without a tuple or a dictionary, because
// making such an object takes time.
#include "python/core/array.h"
#include "python/core/call.h"
#include "python/core/docs.h"
#include "python/core/functions.h"

namespace attnkit_python
{

nb::object copied(PyObject *const *, Py_ssize_t, PyObject *)
{
    return nb::int_(copied_bytes());
}

namespace
{

nb::list list_isas()
{
    char message[ATTNKIT_MESSAGE_SIZE];
    nb::list isas;
    for (int32_t i = 0; i < attnkit_isa_count(); i++) {
        attnkit_isa_info isa;
        attnkit_isa_info_init(&isa);
        expect_ok(attnkit_isa_get(i, &isa, message), message);
        nb::dict entry;
        entry["name"] = isa.name;
        entry["needs"] = isa.needs;
        entry["built"] = isa.built != 0;
        entry["can_run"] = isa.can_run != 0;
        entry["reason"] = isa.reason;
        isas.append(entry);
    }
    return isas;
}

nb::list list_units()
{
    char message[ATTNKIT_MESSAGE_SIZE];
    nb::list units;
    for (int32_t i = 0; i < attnkit_unit_count(); i++) {
        attnkit_unit_info unit;
        attnkit_unit_info_init(&unit);
        expect_ok(attnkit_unit_get(i, &unit, message), message);
        nb::dict entry;
        entry["name"] = unit.name;
        entry["needs"] = unit.needs;
        entry["built"] = unit.built != 0;
        entry["can_run"] = unit.can_run != 0;
        entry["used"] = unit.used != 0;
        entry["reason"] = unit.reason;
        units.append(entry);
    }
    return units;
}

} // namespace

nb::object info(PyObject *const *, Py_ssize_t, PyObject *)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_isa_choice choice;
    attnkit_isa_choice_init(&choice);
    expect_ok(attnkit_isa_choose(nullptr, &choice, message), message);
    nb::dict result;
    result["version"] = attnkit_version();
    result["prefill"] = choice.prefill;
    result["decode"] = choice.decode;
    result["unit"] = choice.unit ? nb::object(nb::str(choice.unit)) : nb::none();
    result["reason"] = choice.reason;
    result["isas"] = list_isas();
    result["units"] = list_units();
    return std::move(result);
}

nb::object enable(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    enum { UNIT, COUNT };
    static const name_list list = {"enable", 1, 1, {{"unit", UNIT}}};
    values<COUNT> given;
    read_names(list, args, positional, names, given.of);
    std::string unit;
    if (!is_text(given.of[UNIT], unit))
        bad_type("unit is not a str: must be a name such as 'avx512+amx'");
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_enable(unit.c_str(), message), message);
    forget_plans();
    return nb::none();
}

namespace
{

template <function f> PyMethodDef method(const char *name, const char *text)
{
    return {name, (PyCFunction)(void (*)(void))guarded<f>, METH_FASTCALL | METH_KEYWORDS, text};
}

PyMethodDef methods[] = {
    method<attention>("attention", docs::attention),
    method<scaled_dot_product_attention>("scaled_dot_product_attention", docs::torch),
    method<attention_varlen>("attention_varlen", docs::varlen),
    method<merge>("merge", docs::merge),
    method<info>("info", docs::info),
    method<enable>("enable", docs::enable),
    method<attend_cache>("attend_cache", nullptr),
    method<attend_part>("attend_part", nullptr),
    method<append>("append", nullptr),
    method<pack>("pack", nullptr),
    method<linear>("linear", nullptr),
    method<layer_pack>("layer_pack", nullptr),
    method<layer>("layer", nullptr),
    method<copied>("copied_bytes", nullptr),
    method<torch_load>("torch_load", nullptr),
    method<torch_override>("torch_override", nullptr),
    method<torch_runs>("torch_runs", nullptr),
    {nullptr, nullptr, 0, nullptr}};

} // namespace

} // namespace attnkit_python

NB_MODULE(_core, module)
{
    attnkit_python::find_numpy();
    module.attr("__version__") = attnkit_version();
    for (PyMethodDef *method = attnkit_python::methods; method->ml_name; method++) {
        PyObject *const function = PyCFunction_NewEx(method, nullptr, nullptr);
        if (!function)
            throw nb::python_error();
        module.attr(method->ml_name) = nb::steal(function);
    }
}
