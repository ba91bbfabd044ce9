// SPDX-License-Identifier: Apache-2.0
//
// Runs odd FLASH_ATTN_EXT ops, which llama.cpp's own test does not have, in a stock ggml that loads
// attnkit's backend. If attnkit's backend computes an op, the result must be close to the result of
// the CPU backend, and have the same bits on 1, 2 and 3 threads. Otherwise attnkit's backend must
// leave the op to the CPU backend. The log then has one line for each reason, no matter how often
// the program asks whether attnkit's backend supports the op.
//
//     odd_ops LIBRARY     prints TAP
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace
{

std::string logged;

void keep(ggml_log_level, const char *text, void *)
{
    logged += text;
}

int count(const std::string &text, const std::string &word)
{
    int n = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        n++;
    return n;
}

// An op. The sizes of a tensor begin with the innermost dimension, as in ggml. If the op has no
// mask, `mask` is empty.
struct odd {
    const char *name;
    std::vector<int64_t> q, k, v, mask;
    const char *left = nullptr; // words of the reason in the log; NULL if the backend takes the op
    bool permuted_k = false;
    bool strided_mask = false;
    bool sinks = false;
    float max_bias = 0, softcap = 0, scale = 0.125f;
    ggml_type q_type = GGML_TYPE_F32, k_type = GGML_TYPE_F16, v_type = GGML_TYPE_F16;
};

const std::vector<odd> cases = {
    {"no query rows", {64, 0, 8, 1}, {64, 96, 2, 1}, {64, 96, 2, 1}, {}},
    {"no keys", {64, 5, 8, 1}, {64, 0, 2, 1}, {64, 0, 2, 1}, {}},
    {"no keys, a mask without columns", {64, 5, 8, 1}, {64, 0, 2, 1}, {64, 0, 2, 1}, {0, 5, 1, 1}},
    {"rows without elements", {0, 5, 8, 1}, {0, 96, 2, 1}, {64, 96, 2, 1}, {}, "head_dim"},
    {"elements of K that are not adjacent",
     {64, 5, 8, 1},
     {64, 96, 2, 1},
     {64, 96, 2, 1},
     {},
     "row of K are not adjacent",
     true},
    {"one head of K, four of V", {64, 5, 8, 2}, {64, 96, 1, 2}, {64, 96, 4, 2}, {96, 5, 1, 1}},
    {"four heads of K, one of V", {64, 5, 8, 2}, {64, 96, 4, 2}, {32, 96, 1, 2}, {96, 5, 1, 1}},
    {"two heads of K, four of V",
     {64, 5, 8, 1},
     {64, 96, 2, 1},
     {64, 96, 4, 1},
     {},
     "different numbers of heads"},
    {"a mask for each head", {64, 5, 8, 2}, {64, 96, 2, 2}, {64, 96, 2, 2}, {96, 5, 8, 1}},
    {"a mask for each sequence", {64, 5, 8, 2}, {64, 96, 2, 2}, {64, 96, 2, 2}, {96, 5, 1, 2}},
    {"a mask for each head of each sequence",
     {64, 5, 8, 2},
     {64, 96, 2, 2},
     {64, 96, 2, 2},
     {96, 5, 8, 2}},
    {"two masks for eight heads",
     {64, 5, 8, 1},
     {64, 96, 2, 1},
     {64, 96, 2, 1},
     {96, 5, 2, 1},
     "mask must have 1 head"},
    {"two masks for four sequences",
     {64, 5, 8, 4},
     {64, 96, 2, 4},
     {64, 96, 2, 4},
     {96, 5, 1, 2},
     "mask must have 1 head"},
    {"a mask with more rows and columns than needed",
     {64, 5, 8, 1},
     {64, 96, 2, 1},
     {64, 96, 2, 1},
     {128, 32, 1, 1}},
    {"a mask with fewer columns than keys",
     {64, 5, 8, 1},
     {64, 96, 2, 1},
     {64, 96, 2, 1},
     {95, 5, 1, 1},
     "fewer columns than there are keys"},
    {"a mask for each head, with slopes, sinks and softcap",
     {64, 5, 6, 2},
     {64, 600, 2, 2},
     {64, 600, 2, 2},
     {600, 5, 6, 2},
     nullptr,
     false,
     false,
     true,
     8,
     20},
    {"scale 0",
     {64, 5, 8, 1},
     {64, 96, 2, 1},
     {64, 96, 2, 1},
     {96, 5, 1, 1},
     nullptr,
     false,
     false,
     false,
     0,
     0,
     0},
    {"scale below 0",
     {64, 5, 8, 1},
     {64, 96, 2, 1},
     {64, 96, 2, 1},
     {96, 5, 1, 1},
     nullptr,
     false,
     false,
     true,
     0,
     0,
     -0.1f},
    {"softcap below 0",
     {64, 5, 8, 1},
     {64, 96, 2, 1},
     {64, 96, 2, 1},
     {},
     "softcap",
     false,
     false,
     false,
     0,
     -3},
    {"query heads that are no multiple of the heads of V",
     {64, 5, 8, 1},
     {64, 96, 8, 1},
     {64, 96, 3, 1},
     {},
     "different numbers of heads"},
    {"K of q8_0, V of bf16, decode over chunks",
     {64, 1, 8, 1},
     {64, 1500, 2, 1},
     {32, 1500, 2, 1},
     {1500, 1, 1, 1},
     nullptr,
     false,
     false,
     true,
     0,
     0,
     0.1f,
     GGML_TYPE_F32,
     GGML_TYPE_Q8_0,
     GGML_TYPE_BF16},
    {"K of a type that attnkit does not know",
     {256, 5, 8, 1},
     {256, 96, 2, 1},
     {256, 96, 2, 1},
     {},
     "no K of q4_K",
     false,
     false,
     false,
     0,
     0,
     0.1f,
     GGML_TYPE_F32,
     GGML_TYPE_Q4_K},
};

ggml_tensor *tensor(ggml_context *context, ggml_type type, const std::vector<int64_t> &ne)
{
    return ggml_new_tensor_4d(context, type, ne[0], ne[1], ne[2], ne[3]);
}

ggml_tensor *make(ggml_context *context, const odd &c)
{
    ggml_tensor *k = tensor(context, c.k_type, c.k);
    if (c.permuted_k)
        k = ggml_permute(context, tensor(context, c.k_type, {c.k[2], c.k[0], c.k[1], c.k[3]}), 2, 0,
                         1, 3);
    ggml_tensor *const mask = c.mask.empty() ? nullptr : tensor(context, GGML_TYPE_F16, c.mask);
    ggml_tensor *const op =
        ggml_flash_attn_ext(context, tensor(context, c.q_type, c.q), k,
                            tensor(context, c.v_type, c.v), mask, c.scale, c.max_bias, c.softcap);
    if (c.sinks)
        ggml_flash_attn_ext_add_sinks(op, tensor(context, GGML_TYPE_F32, {c.q[2], 1, 1, 1}));
    return op;
}

float random_number()
{
    static uint32_t seed = 1;
    seed = seed * 1664525 + 1013904223;
    return static_cast<float>(seed >> 8) / (1 << 23) - 1;
}

// Draws element i of a tensor. In a mask, the first row of the tensor hides all keys, and every
// other row hides about a quarter of the keys.
float element(const ggml_tensor *t, bool is_mask, int64_t i)
{
    if (!is_mask)
        return 2 * random_number();
    const bool is_masked = i / t->ne[0] == 0 || random_number() < -0.5f;
    return is_masked ? -INFINITY : random_number();
}

void fill(ggml_tensor *t, bool is_mask)
{
    if (ggml_is_empty(t))
        return;
    std::vector<float> values(static_cast<size_t>(ggml_nelements(t)));
    for (size_t i = 0; i < values.size(); i++)
        values[i] = element(t, is_mask, static_cast<int64_t>(i));
    std::vector<char> bytes(ggml_nbytes(t));
    ggml_quantize_chunk(t->type, values.data(), bytes.data(), 0, ggml_nrows(t), t->ne[0], nullptr);
    if (t->type == GGML_TYPE_F32)
        std::memcpy(bytes.data(), values.data(), bytes.size());
    ggml_backend_tensor_set(t, bytes.data(), 0, bytes.size());
}

// Sets all bits of the result, then computes the result. Returns an empty array if the result has
// no elements, and a single NaN, which is close to nothing, if the backend fails.
std::vector<float> compute(ggml_backend_t backend, ggml_cgraph *graph, ggml_tensor *op, int threads)
{
    auto set_threads =
        reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(ggml_backend_get_device(backend)),
            "ggml_backend_set_n_threads"));
    std::vector<float> out(static_cast<size_t>(ggml_nelements(op)));
    if (out.empty())
        return out;
    set_threads(backend, threads);
    ggml_backend_tensor_memset(op, 0xff, 0, ggml_nbytes(op));
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS)
        return {NAN};
    ggml_backend_tensor_get(op, out.data(), 0, ggml_nbytes(op));
    return out;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b)
{
    return a.size() == b.size() &&
           (a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]));
}

// Returns whether the results agree within the tolerance of llama.cpp's own test.
bool close(const std::vector<float> &got, const std::vector<float> &wanted)
{
    if (got.size() != wanted.size())
        return false;
    double error = 0, size = 0;
    for (size_t i = 0; i < wanted.size(); i++) {
        error += std::pow(got[i] - wanted[i], 2);
        size += std::pow(wanted[i], 2);
    }
    return error <= 5e-4 * size;
}

bool right_result(ggml_context *context, ggml_backend_t ours, ggml_backend_t cpu, ggml_tensor *op)
{
    ggml_cgraph *const graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, op);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, cpu);
    for (int i = 0; i < 5; i++)
        if (op->src[i])
            fill(op->src[i], i == 3);
    const std::vector<float> one = compute(ours, graph, op, 1);
    const bool ok = close(one, compute(cpu, graph, op, 1)) &&
                    same_bits(one, compute(ours, graph, op, 2)) &&
                    same_bits(one, compute(ours, graph, op, 3));
    ggml_backend_buffer_free(buffer);
    return ok;
}

// Returns whether the log is right. If the op is left to the CPU backend for a reason that no
// earlier op had, the log must have this reason once. Otherwise the log must have no reason. The
// backend logs each reason only once in a process.
bool right_log(const odd &c)
{
    static std::vector<std::string> said;
    bool is_new = c.left != nullptr;
    for (const std::string &words : said)
        is_new = is_new && words != c.left;
    if (is_new)
        said.push_back(c.left);
    return count(logged, "left to the CPU backend") == is_new &&
           (!is_new || count(logged, c.left) == 1);
}

bool run(const odd &c, ggml_backend_t ours, ggml_backend_t cpu)
{
    ggml_context *const context = ggml_init({1 << 20, nullptr, true});
    ggml_tensor *const op = make(context, c);
    logged.clear();
    const bool taken = ggml_backend_supports_op(ours, op),
               again = ggml_backend_supports_op(ours, op);
    bool ok = taken == again && taken == !c.left && right_log(c);
    if (taken)
        ok = ok && right_result(context, ours, cpu, op);
    ggml_free(context);
    return ok;
}

} // namespace

int main(int argc, char **argv)
{
    ggml_log_set(keep, nullptr);
    ggml_backend_reg_t reg = argc == 2 ? ggml_backend_load(argv[1]) : nullptr;
    if (!reg) {
        std::printf("Bail out! no backend\n%s", logged.c_str());
        return 1;
    }
    ggml_backend_t ours = ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, 0), nullptr);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
    std::printf("1..%zu\n", cases.size());
    int failed = 0, number = 0;
    for (const odd &c : cases) {
        const bool ok = run(c, ours, cpu);
        if (!ok)
            std::printf("%s", logged.c_str());
        std::printf("%s %d - %s\n", ok ? "ok" : "not ok", ++number, c.name);
        failed += !ok;
    }
    ggml_backend_free(ours);
    ggml_backend_free(cpu);
    return failed ? 1 : 0;
}
