/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/linear_call.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>

#include "kernels/scalar/reference.h"
#include "kernels/scalar/scalar.h"
#include "tests/support/formats.h"

enum { LINE = 64 /* bytes, the alignment of packed matrices */ };

const attnkit_type matrix_conversions[MATRIX_CONVERSIONS][2] = {
    {ATTNKIT_F32, ATTNKIT_F32},   {ATTNKIT_F32, ATTNKIT_F16},   {ATTNKIT_F32, ATTNKIT_BF16},
    {ATTNKIT_F32, ATTNKIT_Q8_0},  {ATTNKIT_F16, ATTNKIT_F32},   {ATTNKIT_F16, ATTNKIT_F16},
    {ATTNKIT_F16, ATTNKIT_BF16},  {ATTNKIT_F16, ATTNKIT_Q8_0},  {ATTNKIT_BF16, ATTNKIT_F32},
    {ATTNKIT_BF16, ATTNKIT_F16},  {ATTNKIT_BF16, ATTNKIT_BF16}, {ATTNKIT_BF16, ATTNKIT_Q8_0},
    {ATTNKIT_Q8_0, ATTNKIT_Q8_0},
};

/* --- Memory ----------------------------------------------------------------------------------- */

static int64_t alignment_of(attnkit_type type)
{
    return type == ATTNKIT_F32 ? 4 : 2;
}

static struct tensor rows_of(attnkit_type type, int64_t rows, int64_t dim)
{
    return (struct tensor){.count = {1, 1, rows}, .row_bytes = bytes_of((enum type)type, dim)};
}

static void place_rows(struct linear_call *c, enum layout_kind layout)
{
    struct tensor *const tensors[] = {&c->x, &c->w, &c->y};
    const attnkit_type types[] = {c->args.x.type, c->pack.w.type, c->args.y.type};
    const bool is_guarded = layout == BEFORE_GUARD || layout == AFTER_GUARD;
    int slot = 0;
    for (int i = 0; i < 3; i++) {
        const bool fits = !is_guarded || tensor_fits_slots(tensors[i]);
        tensor_place(tensors[i], fits ? layout : PADDED, i, slot, alignment_of(types[i]));
        slot += (int)tensor_rows(tensors[i]) + 1;
    }
    c->args.x.data = c->x.first;
    c->args.y.data = c->y.first;
    c->pack.w.data = c->w.first;
    if (layout == DENSE)
        return;
    c->args.x.layout = c->args.y.layout = c->pack.w.layout = ATTNKIT_STRIDED;
    c->args.x.strides[2] = c->x.strides[2];
    c->args.y.strides[2] = c->y.strides[2];
    c->pack.w.strides[2] = c->w.strides[2];
}

static void place_packed(struct linear_call *c, bool at_end)
{
    const size_t bias = c->args.bias ? (size_t)c->args.out_dim * sizeof(float) : 0;
    assert_int_equal(attnkit_packed_size(&c->pack, &c->pack.packed_size, NULL), ATTNKIT_OK);
    c->packed = memory_guarded((c->pack.packed_size + LINE - 1) / LINE * LINE, 0, at_end);
    c->bias = memory_guarded(bias, 0, at_end);
    c->pack.packed = c->packed.data;
    c->args.w.data = c->packed.data;
    if (bias)
        c->args.bias = (const float *)c->bias.data;
}

/* --- Numbers ---------------------------------------------------------------------------------- */

/* Returns a factor that makes numbers of x, or of w if `of_matrix`, small. The factor is not too
 * small for the exponent range of the type. */
static float smallness(attnkit_type type, bool of_matrix)
{
    return type == ATTNKIT_F16 || type == ATTNKIT_Q8_0 ? 0x1p-12f
           : of_matrix                                 ? 0x1p-20f
                                                       : 0x1p-120f;
}

static void draw(float *x, int64_t count, enum numbers numbers, float tiny, uint64_t *random)
{
    const bool is_special = numbers == SPECIAL && random_below(random, 3) == 0;
    for (int64_t i = 0; i < count; i++) {
        x[i] = is_special ? random_number(random) : random_normal(random);
        if (numbers == TINY)
            x[i] *= tiny;
    }
}

static void fill_rows(const struct tensor *t, attnkit_type type, int64_t dim, enum numbers numbers,
                      bool of_matrix, uint64_t *random)
{
    float *const x = malloc((size_t)dim * sizeof *x);
    for (int64_t i = 0; i < t->count[2]; i++) {
        draw(x, dim, numbers, smallness(type, of_matrix), random);
        attnkit_scalar_narrow((enum type)type, x, dim, 0, tensor_row(t, 0, 0, i), NULL);
    }
    free(x);
}

struct linear_call *linear_call_new(const struct linear_kind *kind, struct linear_shape shape,
                                    uint64_t seed)
{
    struct linear_call *const c = calloc(1, sizeof *c);
    static const float some_bias;
    c->pack = (attnkit_pack_args){
        .size = sizeof c->pack,
        .out_dim = shape.out_dim,
        .in_dim = shape.in_dim,
        .w.type = kind->w_type,
        .packed_type = kind->packed_type,
    };
    c->args = (attnkit_linear_args){
        .size = sizeof c->args,
        .rows = shape.rows,
        .in_dim = shape.in_dim,
        .out_dim = shape.out_dim,
        .bias = kind->bias ? &some_bias : NULL,
        .flags = kind->integers ? ATTNKIT_INTEGERS : 0,
        .x.type = kind->x_type,
        .w.type = kind->packed_type,
        .y.type = kind->y_type,
    };
    c->x = rows_of(kind->x_type, shape.rows, shape.in_dim);
    c->w = rows_of(kind->w_type, shape.out_dim, shape.in_dim);
    c->y = rows_of(kind->y_type, shape.rows, shape.out_dim);
    place_rows(c, kind->layout);
    place_packed(c, kind->layout != AFTER_GUARD);
    fill_rows(&c->x, kind->x_type, shape.in_dim, kind->numbers, false, &seed);
    fill_rows(&c->w, kind->w_type, shape.in_dim, kind->numbers, true, &seed);
    if (kind->bias)
        draw((float *)c->bias.data, shape.out_dim, kind->numbers, 0x1p-130f, &seed);
    return c;
}

void linear_call_free(struct linear_call *c)
{
    memory_unguard(&c->packed);
    memory_unguard(&c->bias);
    free(c);
}

/* --- Running a map ---------------------------------------------------------------------------- */

static void twice_and_backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i),
                                void *arg)
{
    (void)pool;
    for (int64_t i = 2 * n; i-- > 0;)
        task(arg, i % n);
}

static void expect_ok(attnkit_status status, const char *message)
{
    if (status != ATTNKIT_OK || message[0] != '\0')
        fail_msg("%s: %s", attnkit_status_string(status), message);
}

static struct packing packing_of(const struct linear_call *c)
{
    return (struct packing){
        .out_dim = c->pack.out_dim,
        .in_dim = c->pack.in_dim,
        .type = (enum type)c->pack.w.type,
        .packed_type = (enum type)c->pack.packed_type,
        .w = c->w.first,
        .stride = c->w.strides[2],
        .packed = c->pack.packed,
    };
}

static struct linear linear_of(const struct linear_call *c)
{
    return (struct linear){
        .rows = c->args.rows,
        .in_dim = c->args.in_dim,
        .out_dim = c->args.out_dim,
        .integers = c->args.flags & ATTNKIT_INTEGERS,
        .x_type = (enum type)c->args.x.type,
        .w_type = (enum type)c->args.w.type,
        .y_type = (enum type)c->args.y.type,
        .x = c->x.first,
        .x_stride = c->x.strides[2],
        .w = c->args.w.data,
        .bias = c->args.bias,
        .y = c->y.first,
        .y_stride = c->y.strides[2],
    };
}

static attnkit_exec exec_of(struct runner runner)
{
    return (attnkit_exec){.size = sizeof(attnkit_exec),
                          .isa = runner.isa,
                          .threads = runner.threads,
                          .parallel_for = runner.threads == 2 ? twice_and_backwards : NULL};
}

/* Returns the index of the last calling thread. With up to 2 threads, only thread 0 calls. */
static int64_t last_thread(struct runner runner)
{
    return runner.threads > 2 ? runner.threads - 1 : 0;
}

void linear_call_pack(const struct linear_call *c, struct runner runner)
{
    memset(c->packed.data, PATTERN, (c->pack.packed_size + LINE - 1) / LINE * LINE);
    if (runner.kernels) {
        const struct packing p = packing_of(c);
        attnkit_pack_tiles(&p, runner.kernels, 0, matrix_tiles(p.out_dim));
        return;
    }
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    attnkit_exec exec = exec_of(runner);
    for (exec.thread = last_thread(runner); exec.thread >= 0; exec.thread--)
        expect_ok(attnkit_pack(&c->pack, &exec, message), message);
}

struct parts {
    int64_t next, end;
};

static int64_t next_part(void *arg)
{
    struct parts *const parts = arg;
    return parts->next < parts->end ? parts->next++ : -1;
}

static void run_kernels(const struct linear_call *c, const struct kernels *kernels)
{
    const struct linear l = linear_of(c);
    const size_t size = (attnkit_linear_scratch(&l, kernels) + LINE - 1) / LINE * LINE;
    char *const scratch = aligned_alloc(LINE, size);
    struct parts parts = {0, attnkit_linear_parts(&l, kernels)};
    attnkit_linear_run_parts(&l, kernels, next_part, &parts, scratch);
    free(scratch);
}

void linear_call_run(const struct linear_call *c, struct runner runner)
{
    if (runner.kernels) {
        run_kernels(c, runner.kernels);
        return;
    }
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    attnkit_exec exec = exec_of(runner);
    expect_ok(attnkit_linear_workspace(&c->args, &exec, &exec.workspace_size, message), message);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    for (exec.thread = last_thread(runner); exec.thread >= 0; exec.thread--)
        expect_ok(attnkit_linear(&c->args, &exec, message), message);
    memory_unguard(&workspace);
}

/* --- What is expected ------------------------------------------------------------------------- */

/* Converts row `out` of w to the packed type, in `row`. `wide` is memory for a row in binary32. */
static void convert_row(const struct linear_call *c, int64_t out, float *wide, char *row)
{
    const enum type from = (enum type)c->pack.w.type, to = (enum type)c->pack.packed_type;
    const char *const w = tensor_row(&c->w, 0, 0, out);
    if (from == to) {
        memcpy(row, w, (size_t)c->w.row_bytes);
        return;
    }
    attnkit_scalar_widen(from, w, NULL, 0, c->pack.in_dim, wide);
    attnkit_scalar_narrow(to, wide, c->pack.in_dim, 0, row, NULL);
}

bool linear_call_is_packed(const struct linear_call *c)
{
    const enum type type = (enum type)c->pack.packed_type;
    const int64_t row_bytes = bytes_of(type, c->pack.in_dim);
    const size_t size = (c->pack.packed_size + LINE - 1) / LINE * LINE;
    char *const expected = calloc(1, size), *const row = malloc((size_t)row_bytes);
    float *const wide = malloc((size_t)c->pack.in_dim * sizeof *wide);
    memset(expected + c->pack.packed_size, PATTERN, size - c->pack.packed_size);
    for (int64_t out = 0; out < c->pack.out_dim; out++) {
        char *const tile = expected + out / TILE_KEYS * TILE_KEYS * row_bytes;
        convert_row(c, out, wide, row);
        for (int64_t n = 0; n < row_bytes; n++)
            tile[byte_in_tile(type, n, out % TILE_KEYS)] = row[n];
    }
    const bool is_same = memcmp(c->packed.data, expected, size) == 0;
    free(expected);
    free(row);
    free(wide);
    return is_same;
}

char *linear_call_reference(const struct linear_call *c)
{
    const struct packing p = packing_of(c);
    struct linear l = linear_of(c);
    l.y_stride = c->y.row_bytes;
    l.y = malloc((size_t)(l.rows * l.y_stride) + 1);
    attnkit_reference_linear(&l, &p);
    return l.y;
}

static bool is_untouched(const struct tensor *t)
{
    for (size_t i = 0; i < t->pieces; i++)
        for (size_t n = 0; n < t->piece; n++)
            if ((unsigned char)t->memory[i * t->distance + n] != PATTERN)
                return false;
    return true;
}

char *linear_call_take(const struct linear_call *c)
{
    const size_t row = (size_t)c->y.row_bytes;
    char *const y = malloc((size_t)c->args.rows * row + 1);
    for (int64_t i = 0; i < c->args.rows; i++) {
        memcpy(y + (size_t)i * row, tensor_row(&c->y, 0, 0, i), row);
        memset(tensor_row(&c->y, 0, 0, i), PATTERN, row);
    }
    if (is_untouched(&c->y))
        return y;
    free(y);
    return NULL;
}

bool linear_call_same(const struct linear_call *c, const char *y, const char *z, int64_t rows)
{
    return memcmp(y, z, (size_t)(rows * c->y.row_bytes)) == 0;
}

const char *linear_call_check(const struct linear_call *c, struct runner runner)
{
    linear_call_pack(c, runner);
    if (!linear_call_is_packed(c))
        return "packed differs";
    linear_call_run(c, runner);
    char *const expected = linear_call_reference(c), *const y = linear_call_take(c);
    const char *const wrong = !y ? "a byte outside the rows of y has changed"
                              : !linear_call_same(c, y, expected, c->args.rows) ? "y differs"
                                                                                : NULL;
    free(expected);
    free(y);
    return wrong;
}
