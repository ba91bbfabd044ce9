// SPDX-License-Identifier: Apache-2.0
//
// Finds the names of arguments by the addresses of their texts: Python interns names, so equal
// names nearly always have the same address. Names are compared letter by letter only if no address
// matches. Comparing addresses keeps small calls cheap.
#include "python/core/names.h"

#include <cstring>

namespace attnkit_python
{

namespace
{

// The names of a list as texts of Python. The texts are never freed.
struct kept_names {
    const name_list *list;
    int count;
    PyObject *texts[most_names];
};
constexpr int most_lists = 24;
kept_names kept[most_lists];
int kept_count;

const kept_names &keep(const name_list &list)
{
    for (int i = 0; i < kept_count; i++)
        if (kept[i].list == &list)
            return kept[i];
    if (kept_count == most_lists)
        throw refused{PyExc_RuntimeError, "too many functions"};
    kept_names &names = kept[kept_count];
    names.list = &list;
    while (names.count < most_names && list.names[names.count].name) {
        names.texts[names.count] = PyUnicode_InternFromString(list.names[names.count].name);
        names.count++;
    }
    kept_count++;
    return names;
}

// Returns the index of a name in a list, or -1. Begins the search at index `from`, where the caller
// expects the name.
int find(const kept_names &names, PyObject *text, int from)
{
    for (int i = from; i < names.count; i++)
        if (names.texts[i] == text)
            return i;
    for (int i = 0; i < from; i++)
        if (names.texts[i] == text)
            return i;
    for (int i = 0; i < names.count; i++)
        if (PyUnicode_Compare(names.texts[i], text) == 0)
            return i;
    return -1;
}

} // namespace

void read_names(const name_list &list, PyObject *const *args, Py_ssize_t positional,
                PyObject *names, PyObject **values)
{
    const std::string function = list.function;
    if (positional > list.positional)
        bad_type(function + "() takes at most " + std::to_string(list.positional) +
                 " arguments by position, not " + std::to_string(positional));
    for (Py_ssize_t i = 0; i < positional; i++)
        if (args[i] != Py_None)
            values[list.names[i].place] = args[i];
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    const kept_names &texts = keep(list);
    int from = (int)positional;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *const text = PyTuple_GetItem(names, i), *const value = args[positional + i];
        const int found = find(texts, text, from);
        if (found < 0)
            bad_type(function + "() has no argument " + nb::str(nb::handle(text)).c_str());
        if (found < positional)
            bad_type(function + "() has " + list.names[found].name + " twice");
        if (value != Py_None)
            values[list.names[found].place] = value;
        from = found + 1;
    }
    for (int i = 0; i < list.required; i++)
        if (!values[list.names[i].place])
            bad_type(function + "() needs " + list.names[i].name);
}

int64_t integer(PyObject *object, const char *name)
{
    PyObject *const index = PyNumber_Index(object);
    if (!index) {
        PyErr_Clear();
        bad_type(std::string(name) + " is " + nb::inst_name(nb::handle(object)).c_str() +
                 ": must be an integer");
    }
    const nb::object whole = nb::steal(index);
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow)
        throw refused{PyExc_OverflowError, std::string(name) + " does not fit into 64 bits"};
    return value;
}

double number(PyObject *object, const char *name)
{
    const double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        bad_type(std::string(name) + " is " + nb::inst_name(nb::handle(object)).c_str() +
                 ": must be a number");
    }
    return value;
}

bool truth(PyObject *object)
{
    if (!object)
        return false;
    const int value = PyObject_IsTrue(object);
    if (value < 0)
        throw raised{};
    return value != 0;
}

bool is_text(PyObject *object, std::string &text)
{
    if (!object || !PyUnicode_Check(object))
        return false;
    const char *const letters = PyUnicode_AsUTF8AndSize(object, nullptr);
    if (!letters)
        throw raised{};
    text = letters;
    return true;
}

} // namespace attnkit_python
