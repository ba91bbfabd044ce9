// SPDX-License-Identifier: Apache-2.0
//
// Arrays of Python: where their memory is, and copies of arrays whose rows attnkit cannot read.
#include "python/core/array.h"

#include <atomic>
#include <cstring>

namespace attnkit_python
{

namespace
{

std::atomic<int64_t> copied{0};

struct numpy_names {
    PyObject *empty = nullptr;
    PyObject *types[5] = {}; // of NumPy: f32, f16, uint16, int32, uint8
    PyObject *bfloat16 = nullptr;
};
numpy_names numpy;

// Returns the type that a format of the buffer protocol stands for, or OTHER. A known format is one
// letter, perhaps after a sign for the byte order of this machine. No format stands for bytes.
int32_t type_of_format(const char *format, int64_t item)
{
    if (!format)
        return UINT8;
    if (*format == '<' || *format == '=' || *format == '@')
        format++;
    if (format[0] == 0 || format[1] != 0)
        return OTHER;
    switch (format[0]) {
    case 'f':
        return ATTNKIT_F32;
    case 'e':
        return ATTNKIT_F16;
    case 'd':
        return FLOAT64;
    case '?':
        return ATTNKIT_BOOL;
    case 'b':
        return ATTNKIT_I8;
    case 'B':
        return UINT8;
    case 'i':
    case 'l':
    case 'q':
        return item == 4 ? INT32 : INT64;
    case 'L':
    case 'Q':
        return item == 8 ? UINT64 : OTHER;
    default:
        return OTHER;
    }
}

// Returns the type that a DLPack type stands for, by the code and the bits of the DLPack type, or
// OTHER.
int32_t type_of_dlpack(nb::dlpack::dtype type)
{
    using code = nb::dlpack::dtype_code;
    static const struct {
        code kind;
        int bits;
        int32_t type;
    } known[] = {{code::Float, 32, ATTNKIT_F32}, {code::Float, 16, ATTNKIT_F16},
                 {code::Float, 64, FLOAT64},     {code::Bfloat, 16, ATTNKIT_BF16},
                 {code::Bool, 8, ATTNKIT_BOOL},  {code::Int, 8, ATTNKIT_I8},
                 {code::Int, 32, INT32},         {code::Int, 64, INT64},
                 {code::UInt, 8, UINT8},         {code::UInt, 64, UINT64}};
    for (const auto &one : known)
        if (type.lanes == 1 && type.code == (uint8_t)one.kind && type.bits == one.bits)
            return one.type;
    return OTHER;
}

// Returns an attribute as text; "" if the object lacks the attribute.
std::string text_of(nb::handle object, const char *attribute)
{
    nb::object value = nb::getattr(object, attribute, nb::none());
    return value.is_none() ? "" : nb::str(value).c_str();
}

// Returns the name of the dtype of a NumPy array; "" for another object.
std::string dtype_name(PyObject *object)
{
    nb::object dtype = nb::getattr(nb::handle(object), "dtype", nb::none());
    return dtype.is_none() ? "" : text_of(dtype, "name");
}

// Returns DLPack's number for the type of the device on which an object lies. The object must have
// __dlpack_device__.
int device_of(nb::handle object)
{
    return nb::cast<int>(object.attr("__dlpack_device__")()[nb::int_(0)]);
}

// Returns why the array of an object cannot be taken by DLPack.
std::string reason_against(nb::handle object)
{
    try {
        object.attr("__dlpack__")();
    } catch (nb::python_error &error) {
        const std::string text = nb::str(error.value()).c_str();
        return text;
    }
    return "its layout is not known here";
}

bool is_multiple(int64_t bytes, int64_t item)
{
    return item > 0 && bytes % item == 0;
}

// Copies an array dimension by dimension. The last dimension is copied at once if its elements are
// adjacent, and else element by element. If the copy has stride 0 in another dimension, only index
// 0 of this dimension is copied.
struct copier {
    const array &from;
    const int64_t *to_strides;

    void run(const char *source, char *target, int dim) const
    {
        const int64_t n = from.shape[dim], step = from.strides[dim], to = to_strides[dim];
        if (dim + 1 < from.ndim) {
            for (int64_t i = 0; i < n; i++)
                if (i == 0 || to != 0)
                    run(source + i * step, target + i * to, dim + 1);
        } else if (step == from.item) {
            memcpy(target, source, (size_t)(n * from.item));
        } else {
            for (int64_t i = 0; i < n; i++)
                memcpy(target + i * from.item, source + i * step, (size_t)from.item);
        }
    }
};

} // namespace

array::~array()
{
    if (has_buffer_)
        PyBuffer_Release(&buffer_);
}

bool array::read_buffer(PyObject *object)
{
    if (!PyObject_CheckBuffer(object))
        return false;
    const int flags = PyBUF_STRIDES | PyBUF_FORMAT;
    if (PyObject_GetBuffer(object, &buffer_, flags) != 0) {
        PyErr_Clear();
        return false;
    }
    has_buffer_ = true;
    if (buffer_.ndim > most_dims)
        bad_value(std::string(name_) + " has " + std::to_string(buffer_.ndim) +
                  " dimensions: must have at most " + std::to_string(most_dims));
    data = (char *)buffer_.buf;
    ndim = buffer_.ndim;
    item = buffer_.itemsize;
    writable = !buffer_.readonly;
    type = type_of_format(buffer_.format, item);
    for (int d = 0; d < ndim; d++) {
        shape[d] = buffer_.shape[d];
        strides[d] = buffer_.strides[d];
    }
    return true;
}

// Reads bfloat16 and float8 of ml_dtypes. These types have no format in the buffer protocol, so
// their bits are read as integers. Returns false if the object is no such array.
bool array::read_narrow(PyObject *object)
{
    const std::string name = dtype_name(object);
    const bool is_bfloat16 = name == "bfloat16", is_float8 = name == "float8_e4m3fn";
    if ((!is_bfloat16 && !is_float8) || !nb::hasattr(nb::handle(object), "view"))
        return false;
    keep_ = nb::handle(object).attr("view")(is_bfloat16 ? "uint16" : "uint8");
    if (!read_buffer(keep_.ptr()))
        return false;
    type = is_bfloat16 ? (int32_t)ATTNKIT_BF16 : (int32_t)ATTNKIT_F8_E4M3;
    return true;
}

// Takes an array by DLPack, and returns whether the object gave one. Only an output is asked for
// write access. `writable` says whether the object gave write access.
bool array::take_dlpack(nb::handle object)
{
    nb::ndarray<> written;
    writable = wants_write_ && nb::try_cast(object, written);
    if (writable)
        dlpack_ = nb::ndarray<nb::ro>(written);
    const bool is_taken = writable || nb::try_cast(object, dlpack_);
    PyErr_Clear();
    return is_taken;
}

void array::read_dlpack(PyObject *object)
{
    const nb::handle handle(object);
    if (!nb::hasattr(handle, "__dlpack__") || !nb::hasattr(handle, "__dlpack_device__")) {
        const std::string name = dtype_name(object);
        const std::string what =
            name.empty() ? nb::inst_name(handle).c_str() : "an array of " + name;
        bad_type(std::string(name_) + " is " + what + ": must be an array of NumPy or have DLPack");
    }
    const int device = device_of(handle);
    if (device != nb::device::cpu::value)
        bad_value(std::string(name_) + " is on a device of DLPack's type " +
                  std::to_string(device) + ": must be on the CPU (1)");
    if (!take_dlpack(handle)) {
        bad_type(std::string(name_) + " cannot be taken by DLPack: " + reason_against(handle));
    }
    if (dlpack_.ndim() > (size_t)most_dims)
        bad_value(std::string(name_) + " has " + std::to_string(dlpack_.ndim()) +
                  " dimensions: must have at most " + std::to_string(most_dims));
    data = (char *)const_cast<void *>(dlpack_.data());
    ndim = (int)dlpack_.ndim();
    item = (dlpack_.dtype().bits + 7) / 8;
    type = type_of_dlpack(dlpack_.dtype());
    for (int d = 0; d < ndim; d++) {
        shape[d] = (int64_t)dlpack_.shape((size_t)d);
        strides[d] = dlpack_.stride((size_t)d) * item;
    }
}

void array::read(PyObject *object, const char *name)
{
    name_ = name;
    if (!read_buffer(object) && !read_narrow(object))
        read_dlpack(object);
}

void array::read_output(PyObject *object, const char *name)
{
    wants_write_ = true;
    read(object, name);
    if (!writable)
        bad_value(std::string(name) + " is read-only");
}

std::string array::type_name() const
{
    switch (type) {
    case ATTNKIT_F32:
        return "float32";
    case ATTNKIT_F16:
        return "float16";
    case ATTNKIT_BF16:
        return "bfloat16";
    case ATTNKIT_F8_E4M3:
        return "float8_e4m3fn";
    case ATTNKIT_I8:
        return "int8";
    case ATTNKIT_BOOL:
        return "bool";
    case FLOAT64:
        return "float64";
    case INT32:
        return "int32";
    case INT64:
        return "int64";
    case UINT64:
        return "uint64";
    case UINT8:
        return "uint8";
    default:
        return has_buffer_ && buffer_.format
                   ? "of the type '" + std::string(buffer_.format) + "'"
                   : "of a type of " + std::to_string(8 * item) + " bits that attnkit lacks";
    }
}

std::string text_of_shape(const int64_t *shape, int ndim)
{
    std::string text = "(";
    for (int d = 0; d < ndim; d++)
        text += (d ? ", " : "") + std::to_string(shape[d]);
    return text + (ndim == 1 ? ",)" : ")");
}

std::string array::shape_text() const
{
    return text_of_shape(shape, ndim);
}

void array::expect_ndim(int wanted) const
{
    if (ndim != wanted)
        bad_value(std::string(name_) + " has the shape " + shape_text() + ": must have " +
                  std::to_string(wanted) + " dimensions");
}

void array::expect_float() const
{
    if (type != ATTNKIT_F32 && type != ATTNKIT_F16 && type != ATTNKIT_BF16)
        bad_type(std::string(name_) + " is " + type_name() +
                 ": must be float32, float16 or bfloat16");
}

void array::broadcast(const int64_t *wanted, int dims)
{
    bool fits = ndim <= dims;
    for (int d = 0; fits && d < ndim; d++)
        fits = shape[d] == 1 || shape[d] == wanted[dims - ndim + d];
    if (!fits)
        bad_value(std::string(name_) + " has the shape " + shape_text() +
                  ": must be, or repeat to, " + text_of_shape(wanted, dims));
    const int new_dims = dims - ndim;
    for (int d = dims - 1; d >= 0; d--) {
        const bool repeats = d < new_dims || shape[d - new_dims] == 1;
        strides[d] = repeats ? 0 : strides[d - new_dims];
        shape[d] = wanted[d];
    }
    ndim = dims;
}

bool array::has_rows() const
{
    if ((uintptr_t)data % (uintptr_t)item != 0)
        return false;
    for (int d = 0; d < ndim; d++)
        if (shape[d] > 1 && !is_multiple(strides[d], item))
            return false;
    return ndim == 0 || shape[ndim - 1] <= 1 || strides[ndim - 1] == item;
}

void array::make_rows()
{
    if (!has_rows())
        copy(false);
}

void array::expect_rows() const
{
    if (!has_rows())
        bad_value(std::string(name_) + " has rows whose elements are not adjacent, or not aligned");
}

bool array::first_can_merge(int count) const
{
    int inner = -1;
    for (int d = count - 1; d >= 0; d--) {
        if (shape[d] == 1)
            continue;
        if (inner >= 0 && strides[d] != strides[inner] * shape[inner])
            return false;
        inner = d;
    }
    return true;
}

void array::merge_first(int count)
{
    if (!first_can_merge(count)) {
        if (wants_write_)
            bad_value(std::string(name_) + ": its first dimensions have no common stride");
        copy(true);
    }
    int64_t length = 1, stride = 0;
    for (int d = count - 1; d >= 0; d--) {
        if (shape[d] != 1 && length == 1)
            stride = strides[d];
        length *= shape[d];
    }
    shape[0] = length;
    strides[0] = stride;
    for (int d = count; d < ndim; d++) {
        shape[d - count + 1] = shape[d];
        strides[d - count + 1] = strides[d];
    }
    ndim -= count - 1;
}

void array::make_heads()
{
    if (ndim > 4)
        merge_first(ndim - 3);
    const int missing = 4 - ndim;
    for (int d = 3; missing > 0 && d >= 0; d--) {
        shape[d] = d < missing ? 1 : shape[d - missing];
        strides[d] = d < missing ? 0 : strides[d - missing];
    }
    ndim = 4;
}

void array::make_list()
{
    if (ndim > 2)
        merge_first(ndim - 1);
    if (ndim == 1) {
        shape[1] = shape[0];
        strides[1] = strides[0];
        shape[0] = 1;
        strides[0] = 0;
        ndim = 2;
    }
}

void array::make_dense()
{
    int64_t dense = item;
    bool is_dense = (uintptr_t)data % (uintptr_t)item == 0;
    for (int d = ndim - 1; d >= 0; d--) {
        is_dense = is_dense && (shape[d] <= 1 || strides[d] == dense);
        dense *= shape[d];
    }
    if (!is_dense)
        copy(true);
}

// Copies the elements into new memory. Dimensions of stride 0, except the last dimension, stay
// repeated unless `expands`.
void array::copy(bool expands)
{
    int64_t to[most_dims], bytes = item;
    for (int d = ndim - 1; d >= 0; d--) {
        const bool stays = !expands && strides[d] == 0 && d != ndim - 1;
        to[d] = stays ? 0 : bytes;
        if (!stays && __builtin_mul_overflow(bytes, shape[d], &bytes))
            throw refused{PyExc_OverflowError, std::string(name_) + " is too large to be copied"};
    }
    std::unique_ptr<char[]> target(new char[bytes ? (size_t)bytes : 1]);
    if (bytes)
        copier{*this, to}.run(data, target.get(), 0);
    copied.fetch_add(bytes, std::memory_order_relaxed);
    copy_ = std::move(target);
    data = copy_.get();
    memcpy(strides, to, sizeof to);
}

attnkit_tensor array::tensor() const
{
    attnkit_tensor tensor = {};
    tensor.data = data;
    tensor.type = type;
    tensor.layout = ATTNKIT_STRIDED;
    for (int i = 0; i < 3; i++) {
        const int d = ndim - 4 + i;
        tensor.strides[i] = d >= 0 && shape[d] > 1 ? strides[d] : 0;
    }
    return tensor;
}

int64_t copied_bytes()
{
    return copied.load(std::memory_order_relaxed);
}

void find_numpy()
{
    const nb::object module = nb::module_::import_("numpy");
    const char *const names[5] = {"float32", "float16", "uint16", "int32", "uint8"};
    for (int i = 0; i < 5; i++)
        numpy.types[i] = module.attr("dtype")(names[i]).release().ptr();
    numpy.empty = nb::object(module.attr("empty")).release().ptr();
}

static PyObject *bfloat16()
{
    if (!numpy.bfloat16) {
        PyObject *const module = PyImport_ImportModule("ml_dtypes");
        if (!module) {
            PyErr_Clear();
            throw refused{PyExc_ImportError,
                          "a result of bfloat16 needs the package ml_dtypes, or the argument out"};
        }
        numpy.bfloat16 = nb::object(nb::steal(module).attr("bfloat16")).release().ptr();
    }
    return numpy.bfloat16;
}

static int index_of_type(int32_t type)
{
    switch (type) {
    case ATTNKIT_F32:
        return 0;
    case ATTNKIT_F16:
        return 1;
    case ATTNKIT_BF16:
        return 2;
    case INT32:
        return 3;
    default:
        return 4;
    }
}

fresh new_array(const int64_t *shape, int ndim, int32_t type)
{
    PyObject *const sizes = PyTuple_New(ndim);
    if (!sizes)
        throw raised{};
    for (int d = 0; d < ndim; d++)
        PyTuple_SetItem(sizes, d, PyLong_FromLongLong(shape[d]));
    const nb::object tuple = nb::steal(sizes);
    PyObject *const dtype = numpy.types[index_of_type(type)];
    nb::object object = owned(PyObject_CallFunctionObjArgs(numpy.empty, sizes, dtype, nullptr));
    Py_buffer buffer;
    if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_SIMPLE) != 0)
        throw raised{};
    char *const data = (char *)buffer.buf;
    PyBuffer_Release(&buffer); // the memory stays where it is
    if (type == ATTNKIT_BF16)
        object = object.attr("view")(nb::handle(bfloat16()));
    return {std::move(object), data};
}

} // namespace attnkit_python
