// SPDX-License-Identifier: Apache-2.0
//
// Computes graphs with attention and other ops by attnkit's backend for ggml. A stock ggml loads
// the backend. ggml must not split such a graph, unless the backend leaves ops to the CPU backend.
// The result must be close to the result of the CPU backend, with plain weights and with repacked
// weights. The result must have the same bits with 1, 2 and 3 threads. Further tests: ops that the
// backend leaves to the CPU backend, graphs that fail or are aborted, two backends in two threads,
// and a program with a GPU.
//
//     graphs LIBRARY     prints TAP
#include <ggml-alloc.h>
#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace
{

constexpr int64_t size = 512, head = 64, heads = 8, kv_heads = 2, rows = 3, keys = 700;
constexpr int layers = 3;

ggml_backend_dev_t device, cpu_device; // devices of attnkit's backend and of the CPU backend

void fill(ggml_tensor *t, unsigned seed)
{
    std::vector<float> values(static_cast<size_t>(ggml_nelements(t)));
    for (float &value : values) {
        seed = seed * 1664525 + 1013904223;
        value = (static_cast<float>(seed >> 8) / (1 << 23) - 1) / 16;
    }
    std::vector<char> bytes(ggml_nbytes(t));
    if (t->type == GGML_TYPE_F32)
        std::memcpy(bytes.data(), values.data(), bytes.size());
    else
        ggml_quantize_chunk(t->type, values.data(), bytes.data(), 0, ggml_nrows(t), t->ne[0],
                            nullptr);
    ggml_backend_tensor_set(t, bytes.data(), 0, bytes.size());
}

// A graph of layers. A layer is a product with a weight matrix, attention, a sum and a norm. All
// layers have the same weight matrix, K and V.
struct model {
    model(ggml_type weight_type, ggml_type k_type, ggml_backend_buffer_type_t weight_buffer)
        : weights(ggml_init({1 << 16, nullptr, true})), context(ggml_init({1 << 20, nullptr, true}))
    {
        weight = ggml_new_tensor_2d(weights, weight_type, size, size);
        buffers[0] = ggml_backend_alloc_ctx_tensors_from_buft(weights, weight_buffer);
        ggml_backend_buffer_set_usage(buffers[0], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        input = ggml_new_tensor_2d(context, GGML_TYPE_F32, size, rows);
        k = ggml_new_tensor_3d(context, k_type, head, keys, kv_heads);
        v = ggml_new_tensor_3d(context, GGML_TYPE_F16, head, keys, kv_heads);
        scale = ggml_new_tensor_1d(context, GGML_TYPE_F32, size);
        ggml_tensor *x = input;
        for (int i = 0; i < layers; i++)
            x = layer(x);
        output = x;
        graph = ggml_new_graph(context);
        ggml_build_forward_expand(graph, output);
    }

    ~model()
    {
        for (ggml_backend_buffer_t buffer : buffers)
            ggml_backend_buffer_free(buffer);
        ggml_free(context);
        ggml_free(weights);
    }

    ggml_tensor *layer(ggml_tensor *x)
    {
        ggml_tensor *const q = ggml_permute(
            context, ggml_reshape_3d(context, ggml_mul_mat(context, weight, x), head, heads, rows),
            0, 2, 1, 3);
        attention = ggml_flash_attn_ext(context, q, k, v, nullptr, 4, 0, 0);
        x = ggml_add(context, x, ggml_reshape_2d(context, attention, size, rows));
        return ggml_mul(context, ggml_rms_norm(context, x, 1e-5f), scale);
    }

    // Gives memory to all tensors but the weight, which has memory already.
    void allocate()
    {
        buffers[1] =
            ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type());
    }

    // Gives memory to the tensors, and fills the weight and the inputs with numbers.
    void set()
    {
        allocate();
        for (auto [tensor, seed] :
             {std::pair(weight, 1u), {input, 2u}, {k, 3u}, {v, 4u}, {scale, 5u}})
            fill(tensor, seed);
    }

    std::vector<float> result() const
    {
        std::vector<float> values(static_cast<size_t>(size * rows));
        ggml_backend_tensor_get(output, values.data(), 0, values.size() * sizeof values[0]);
        return values;
    }

    ggml_context *weights, *context;
    ggml_backend_buffer_t buffers[2] = {};
    ggml_tensor *weight, *input, *k, *v, *scale, *attention, *output;
    ggml_cgraph *graph;
};

template <typename F> F function_of(ggml_backend_dev_t of, const char *name)
{
    return reinterpret_cast<F>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(of), name));
}

// A backend that runs on a given number of threads.
struct backend {
    backend(ggml_backend_dev_t of, int threads) : made(ggml_backend_dev_init(of, nullptr))
    {
        function_of<ggml_backend_set_n_threads_t>(of, "ggml_backend_set_n_threads")(made, threads);
    }

    ~backend()
    {
        ggml_backend_free(made);
    }

    ggml_backend_t made;
};

std::vector<float> computed(ggml_backend_dev_t of, int threads, model &m)
{
    const backend b(of, threads);
    ggml_backend_tensor_memset(m.output, 0xff, 0, ggml_nbytes(m.output));
    if (ggml_backend_graph_compute(b.made, m.graph) != GGML_STATUS_SUCCESS)
        return {};
    return m.result();
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b)
{
    return !a.empty() && a.size() == b.size() &&
           !std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]);
}

bool close(const std::vector<float> &got, const std::vector<float> &wanted)
{
    double error = 0, total = 0;
    for (size_t i = 0; i < got.size() && i < wanted.size(); i++) {
        error += std::pow(got[i] - wanted[i], 2);
        total += std::pow(wanted[i], 2);
    }
    return !got.empty() && got.size() == wanted.size() && error <= 5e-4 * total;
}

std::vector<ggml_tensor> copies(const model &m)
{
    std::vector<ggml_tensor> made;
    for (int i = 0; i < ggml_graph_n_nodes(m.graph); i++)
        made.push_back(*ggml_graph_node(m.graph, i));
    return made;
}

bool right_result(ggml_type weight_type, ggml_backend_buffer_type_t buffer)
{
    model m(weight_type, GGML_TYPE_F16, buffer);
    m.set();
    const std::vector<ggml_tensor> before = copies(m);
    const std::vector<float> one = computed(device, 1, m);
    bool ok = close(one, computed(cpu_device, 1, m));
    for (int threads : {2, 3, 1})
        ok = ok && same_bits(one, computed(device, threads, m));
    const std::vector<ggml_tensor> after = copies(m);
    return ok && !std::memcmp(before.data(), after.data(), before.size() * sizeof before[0]);
}

// Returns the number of parts into which ggml splits the graph of a model for attnkit's backend and
// the CPU backend. Gives memory to the model's tensors.
int splits(model &m)
{
    m.allocate();
    const backend ours(device, 1), cpu(cpu_device, 1);
    ggml_backend_t both[] = {ours.made, cpu.made};
    ggml_backend_sched_t scheduler = ggml_backend_sched_new(both, nullptr, 2, 256, false, false);
    ggml_backend_sched_reserve(scheduler, m.graph);
    const int count = ggml_backend_sched_get_n_splits(scheduler);
    ggml_backend_sched_free(scheduler);
    return count;
}

bool is_one_split()
{
    model m(GGML_TYPE_F32, GGML_TYPE_F16, ggml_backend_cpu_buffer_type());
    return splits(m) == 1;
}

bool leaves_other_attention()
{
    model m(GGML_TYPE_F32, GGML_TYPE_I32, ggml_backend_cpu_buffer_type());
    return splits(m) == 2 * layers + 1;
}

// Tests that the backend does not take a fused op that the CPU backend takes. llama.cpp does not
// use a fused op if the op and its layer belong to different devices.
bool leaves_fused_ops()
{
    ggml_context *const context = ggml_init({1 << 16, nullptr, true});
    const auto tensor = [&](int64_t a, int64_t b, int64_t c) {
        return ggml_new_tensor_4d(context, GGML_TYPE_F32, a, b, c, 1);
    };
    const ggml_tensor *const op = ggml_gated_delta_net(
        context, tensor(64, 2, 4), tensor(64, 2, 4), tensor(64, 2, 4), tensor(1, 2, 4),
        tensor(1, 2, 4), ggml_new_tensor_4d(context, GGML_TYPE_F32, 64, 64, 2, 1), 1);
    const bool ok =
        ggml_backend_dev_supports_op(cpu_device, op) && !ggml_backend_dev_supports_op(device, op);
    ggml_free(context);
    return ok;
}

// Returns true if there is a buffer type of repacked weights, the backend's result with this type
// is right, and the backend supports all extra buffer types.
bool right_with_repacked_weights()
{
    const auto types = function_of<ggml_backend_dev_get_extra_bufts_t>(
        cpu_device, "ggml_backend_dev_get_extra_bufts")(cpu_device);
    bool found = false, ok = true;
    for (auto *type = types; *type; type++) {
        ok = ok && ggml_backend_dev_supports_buft(device, *type);
        found = found || !std::strcmp(ggml_backend_buft_name(*type), "CPU_REPACK");
        if (!std::strcmp(ggml_backend_buft_name(*type), "CPU_REPACK"))
            ok = ok && right_result(GGML_TYPE_Q4_0, *type);
    }
    return found && ok;
}

// Tests attention whose K has a type that attnkit lacks. ggml's scheduler never gives this
// attention to the backend. The computation of the graph must end with the status of a failure.
bool reports_failure()
{
    model m(GGML_TYPE_F32, GGML_TYPE_I32, ggml_backend_cpu_buffer_type());
    m.allocate();
    bool ok = true;
    for (int threads : {1, 2}) {
        const backend b(device, threads);
        ok = ok && ggml_backend_graph_compute(b.made, m.graph) == GGML_STATUS_FAILED;
    }
    return ok;
}

bool ends_when_asked()
{
    model m(GGML_TYPE_F32, GGML_TYPE_F16, ggml_backend_cpu_buffer_type());
    m.set();
    const backend b(device, 2);
    const auto set =
        function_of<ggml_backend_set_abort_callback_t>(device, "ggml_backend_set_abort_callback");
    int calls = 0;
    set(
        b.made, [](void *count) { return ++*static_cast<int *>(count) == 4; }, &calls);
    const bool aborted = ggml_backend_graph_compute(b.made, m.graph) == GGML_STATUS_ABORTED;
    set(b.made, nullptr, nullptr);
    return aborted && calls == 4 &&
           ggml_backend_graph_compute(b.made, m.graph) == GGML_STATUS_SUCCESS;
}

bool runs_twice_at_once()
{
    bool ok[2] = {};
    const auto run = [&ok](int i) {
        model m(GGML_TYPE_F32, GGML_TYPE_F16, ggml_backend_cpu_buffer_type());
        m.set();
        const std::vector<float> first = computed(device, 1, m);
        ok[i] = true;
        for (int n = 0; n < 20; n++)
            ok[i] = ok[i] && same_bits(first, computed(device, 2, m));
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    return ok[0] && ok[1];
}

bool has_right_result()
{
    return right_result(GGML_TYPE_F32, ggml_backend_cpu_buffer_type());
}

// Adds a device that calls itself a GPU and does nothing. The device cannot be removed, so this
// test must be the last.
bool takes_attention_alone_beside_a_gpu()
{
    static ggml_backend_device gpu = {};
    gpu.iface.get_name = gpu.iface.get_description = [](ggml_backend_dev_t) { return "GPU"; };
    gpu.iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    ggml_backend_device_register(&gpu);
    model m(GGML_TYPE_F32, GGML_TYPE_F16, ggml_backend_cpu_buffer_type());
    return splits(m) == 2 * layers + 1 && has_right_result();
}

const std::vector<std::pair<const char *, bool (*)()>> tests = {
    {"the result is close to the CPU backend's, and the program's tensors stay as they are",
     has_right_result},
    {"the result is close with repacked weights, too", right_with_repacked_weights},
    {"ggml does not split a graph", is_one_split},
    {"ggml splits a graph at attention that attnkit does not take", leaves_other_attention},
    {"fused ops are left to the CPU backend", leaves_fused_ops},
    {"an op that fails ends the graph, with a status", reports_failure},
    {"a graph ends when the program asks", ends_when_asked},
    {"two backends compute at once", runs_twice_at_once},
    {"beside a GPU, the backend takes attention alone", takes_attention_alone_beside_a_gpu}};

} // namespace

int main(int argc, char **argv)
{
    ggml_backend_reg_t reg = argc == 2 ? ggml_backend_load(argv[1]) : nullptr;
    if (!reg) {
        std::printf("Bail out! no backend\n");
        return 1;
    }
    device = ggml_backend_reg_dev_get(reg, 0);
    cpu_device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    std::printf("1..%zu\n", tests.size());
    int failed = 0, number = 0;
    for (const auto &[name, test] : tests) {
        const bool ok = test();
        std::printf("%s %d - %s\n", ok ? "ok" : "not ok", ++number, name);
        std::fflush(stdout);
        failed += !ok;
    }
    return failed ? 1 : 0;
}
