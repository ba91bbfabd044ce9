/* SPDX-License-Identifier: Apache-2.0
 *
 * The masks of `attnkit run` and `attnkit layer`. Mask files broadcast like NumPy's arrays:
 * dimensions of size 1 and missing dimensions are repeated. But the last dimension of a mask of
 * bits is never repeated. A mask may have fewer keys than the call.
 */
#include "tools/cli/run/run.h"

#include <string.h>

static const char axes[] = "bhqk";

enum { AXES = 4, KEYS = 3 };

/* Returns the dimensions of the file as letters of "bhqk". */
static const char *dims_of(const struct run_mask *mask)
{
    return mask->dims ? mask->dims : axes + AXES - mask->array.rank;
}

static int axis_of(const struct run_mask *mask, int dimension)
{
    return (int)(strchr(axes, dims_of(mask)[dimension]) - axes);
}

static int64_t last_size(const struct run_mask *mask)
{
    return mask->array.shape[mask->array.rank - 1];
}

static bool check_dims(const struct run_mask *mask)
{
    if (!mask->dims || (int)strlen(mask->dims) == mask->array.rank)
        return true;
    return complain("%s-dims is '%s', but %s has rank %d: must have a letter for each dimension",
                    mask->option, mask->dims, mask->file, mask->array.rank);
}

/* Returns whether all sizes before the last size are 1 or the size of their dimension in the
 * call. */
static bool check_sizes(const struct run_mask *mask, const attnkit_attention_args *args)
{
    const int64_t sizes[] = {args->batch, args->q_heads, args->q_len};
    static const char *const names[] = {"the batch", "the query heads", "the query rows"};
    char shape[NPY_SHAPE_TEXT];
    for (int i = 0; i < mask->array.rank - 1; i++) {
        const int axis = axis_of(mask, i);
        const int64_t size = mask->array.shape[i];
        if (size != 1 && size != sizes[axis])
            return complain("%s %s has dimensions '%s': %s there must be 1 or %lld, not %lld "
                            "(%s-dims names other dimensions)",
                            mask->file, npy_shape(&mask->array, shape), dims_of(mask), names[axis],
                            (long long)sizes[axis], (long long)size, mask->option);
    }
    return true;
}

/* Returns whether the last size is from 1 to `most`. If `most` is 0, the last size must be 0. A
 * mask that is shorter than `most` hides the keys after its end. */
static bool check_last(const struct run_mask *mask, const char *what, int64_t most)
{
    char shape[NPY_SHAPE_TEXT];
    const int64_t size = last_size(mask), least = most > 0;
    return (size >= least && size <= most) ||
           complain("%s %s: its last size is %lld: must be %lld .. %lld, the %s", mask->file,
                    npy_shape(&mask->array, shape), (long long)size, (long long)least,
                    (long long)most, what);
}

/* Repeats the single column of the mask for all keys, because a tensor of the library has no stride
 * between columns. */
static bool repeat_column(struct run_mask *mask, int64_t columns)
{
    struct npy wide;
    const struct npy *const narrow = &mask->array;
    const size_t element = npy_element(narrow->type);
    int64_t shape[NPY_MAX_RANK];
    memcpy(shape, narrow->shape, sizeof shape);
    shape[narrow->rank - 1] = columns;
    if (!npy_make(mask->file, narrow->type, narrow->rank, shape, &wide))
        return false;
    const size_t count = wide.bytes / element;
    for (size_t i = 0; i < count; i++)
        memcpy((char *)wide.data + i * element,
               (const char *)narrow->data + i / (size_t)columns * element, element);
    npy_free(&mask->array);
    mask->array = wide;
    return true;
}

/* Describes the mask as a tensor. A stride of 0 repeats a dimension. A mask without elements keeps
 * strides of 0, because the library reads nothing from it. */
static attnkit_tensor tensor_of(const struct run_mask *mask, attnkit_type type)
{
    const struct npy *const array = &mask->array;
    attnkit_tensor tensor = {.data = array->data, .type = type, .layout = ATTNKIT_STRIDED};
    int64_t stride = (int64_t)npy_element(array->type);
    for (int i = array->rank - 1; array->bytes && i >= 0; i--) {
        const int axis = axis_of(mask, i);
        if (axis != KEYS && array->shape[i] != 1)
            tensor.strides[axis] = stride;
        stride *= array->shape[i];
    }
    return tensor;
}

static bool read_mask(struct run_mask *mask, unsigned types, const attnkit_attention_args *args)
{
    const struct npy_form form = {types, 1, NPY_MAX_RANK};
    return npy_read(mask->file, form, &mask->array) && check_dims(mask) && check_sizes(mask, args);
}

/* If a mask of bytes or numbers has a single column, repeats the column for each key. Refuses a
 * mask with more columns than keys, and a mask without columns if there are keys. */
static bool fit_columns(struct run_mask *mask, int64_t kv_len)
{
    if (last_size(mask) == 1 && kv_len != 1 && !repeat_column(mask, kv_len))
        return false;
    return check_last(mask, "number of keys", kv_len);
}

static bool read_bytes(struct run *run)
{
    if (!read_mask(&run->bytes, 1u << NPY_BOOL | 1u << NPY_U8, &run->args) ||
        !fit_columns(&run->bytes, run->args.kv_len))
        return false;
    run->visibility.mask = tensor_of(&run->bytes, ATTNKIT_BOOL);
    run->visibility.mask_columns = last_size(&run->bytes);
    return true;
}

/* Reads a mask of bits. A byte of the file has the bits of eight keys. In a row that has bits for
 * all keys, the last byte may have the bits of fewer keys. */
static bool read_bits(struct run *run)
{
    const int64_t kv_len = run->args.kv_len, whole = kv_len / 8 + (kv_len % 8 != 0);
    if (!read_mask(&run->bits, 1u << NPY_U8, &run->args) ||
        !check_last(&run->bits, "number of bytes for the bits of all keys", whole))
        return false;
    const int64_t bytes = last_size(&run->bits);
    run->visibility.mask_bits = tensor_of(&run->bits, ATTNKIT_BITS);
    run->visibility.mask_bits_columns = bytes == whole ? kv_len : 8 * bytes;
    return true;
}

static bool read_bias(struct run *run)
{
    if (!read_mask(&run->bias, 1u << NPY_F32 | 1u << NPY_F16, &run->args) ||
        !fit_columns(&run->bias, run->args.kv_len))
        return false;
    run->scores.bias = tensor_of(&run->bias, run_tensor(&run->bias.array).type);
    run->scores.bias_columns = last_size(&run->bias);
    return true;
}

bool run_read_masks(struct run *run)
{
    return (!run->bytes.file || read_bytes(run)) && (!run->bits.file || read_bits(run)) &&
           (!run->bias.file || read_bias(run));
}
