// SPDX-License-Identifier: Apache-2.0
//
// A backend of ggml that computes GGML_OP_FLASH_ATTN_EXT by attnkit. Any program that uses ggml can
// load the backend (GGML_BACKEND_PATH) without a change of the program. It is an accelerator beside
// the CPU backend and works in the buffers of the CPU backend, so nothing is copied. Ops that it
// does not support are left to the CPU backend, and ggml's log has each reason once.
#define GGML_BACKEND_DL // before ggml's headers: exports the function that a program looks up
#define GGML_BACKEND_SHARED
#define GGML_BACKEND_BUILD
#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml-impl.h>
#include <ggml.h>

#include "ggml/op.h"
#include "ggml/plans.h"
#include "ggml/probe.h"
#include "ggml/team.h"

#include <attnkit.hpp>

#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <string>

namespace attnkit_ggml
{

namespace
{

constexpr char name[] = "ATTNKIT";

// ------------------------------------------------------------------------------ computing an op

// The data of a backend. A program has a backend for each of its contexts.
struct state {
    explicit state(bool by_openmp) : threads(by_openmp)
    {
    }

    team threads;
    attnkit_ggml::plans plans;
    attnkit::workspace scratch;
};

// An op with at most so many multiply-adds runs on one thread. All keys count, visible or not. The
// limit is an op of 8 heads of 64 elements and 256 keys, the smallest cache of llama.cpp. One
// thread takes 2 to 17 us for this op. Starting and ending an OpenMP team takes 1 to 4 us, and
// milliseconds if the team has to wait for a processor.
constexpr double most_for_one = 0x1p18;

double multiply_adds(const op_shape &shape)
{
    const attnkit_attention_args &a = shape.args;
    return static_cast<double>(a.batch * a.q_heads) * static_cast<double>(a.q_len) *
           static_cast<double>(a.kv_len) * static_cast<double>(a.head_dim + a.value_dim);
}

void compute(state &s, const ggml_tensor *op)
{
    op_shape shape;
    describe(op, shape);
    const attnkit_exec exec = s.threads.exec(multiply_adds(shape) > most_for_one);
    const planned &found = s.plans.find(shape, exec);
    attnkit_attention_group_data groups;
    found.plan.run(addresses(op, found.slopes, groups), s.scratch, exec);
}

ggml_status compute_graph(ggml_backend_t backend, ggml_cgraph *graph)
{
    state &s = *static_cast<state *>(backend->context);
    try {
        for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
            const ggml_tensor *const node = ggml_graph_node(graph, i);
            if (node->op == GGML_OP_FLASH_ATTN_EXT && (node->flags & GGML_TENSOR_FLAG_COMPUTE))
                compute(s, node);
        }
    } catch (const std::bad_alloc &) {
        GGML_LOG_ERROR("attnkit: no memory for the workspace of FLASH_ATTN_EXT\n");
        return GGML_STATUS_ALLOC_FAILED;
    } catch (const std::exception &problem) {
        GGML_LOG_ERROR("attnkit: FLASH_ATTN_EXT failed: %s\n", problem.what());
        return GGML_STATUS_FAILED;
    }
    return GGML_STATUS_SUCCESS;
}

// ------------------------------------------------------------------------------- which ops

// Returns whether the backend takes the op. A program asks many times: reasons with the same text
// before the parentheses are logged once.
bool takes(const ggml_tensor *op)
{
    static std::mutex mutex;
    static std::set<std::string> said;
    const std::string reason = why_not(op);
    const std::lock_guard<std::mutex> lock(mutex);
    if (!reason.empty() && said.insert(reason.substr(0, reason.find(" ("))).second)
        GGML_LOG_WARN("attnkit: FLASH_ATTN_EXT is left to the CPU backend: %s\n", reason.c_str());
    return reason.empty();
}

bool supports_op(ggml_backend_dev_t, const ggml_tensor *op)
{
    switch (op->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
        return true; // nothing is computed
    case GGML_OP_FLASH_ATTN_EXT:
        return takes(op);
    default:
        return false;
    }
}

// ---------------------------------------------------------------------------------- backend

// ggml calls this before each graph, with the number of threads that the backend may use.
void set_n_threads(ggml_backend_t backend, int threads)
{
    static_cast<state *>(backend->context)->threads.set_threads(threads);
}

// Returns whether ggml's CPU backend says that it runs its threads by OpenMP.
bool cpu_has_openmp()
{
    ggml_backend_reg_t cpu = ggml_backend_reg_by_name("CPU");
    const auto features = reinterpret_cast<ggml_backend_get_features_t>(
        cpu ? ggml_backend_reg_get_proc_address(cpu, "ggml_backend_get_features") : nullptr);
    for (auto *f = features ? features(cpu) : nullptr; f && f->name; f++)
        if (std::strcmp(f->name, "OPENMP") == 0)
            return std::strcmp(f->value, "0") != 0;
    return false;
}

ggml_guid_t guid()
{
    static ggml_guid id = {0x61, 0x74, 0x74, 0x6e, 0x6b, 0x69, 0x74, 0x2e,
                           0x67, 0x67, 0x6d, 0x6c, 0x2e, 0x43, 0x50, 0x55};
    return &id;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char *)
{
    const bool by_openmp = cpu_has_openmp();
    if (by_openmp && !knows_openmp)
        GGML_LOG_WARN("attnkit: ggml has OpenMP, which this backend was built without: its threads "
                      "and the threads of ggml wait for each other\n");
    ggml_backend *const backend = new ggml_backend{};
    backend->guid = guid();
    backend->iface.get_name = [](ggml_backend_t) { return name; };
    backend->iface.free = [](ggml_backend_t b) {
        delete static_cast<state *>(b->context);
        delete b;
    };
    backend->iface.graph_compute = compute_graph;
    backend->device = device;
    backend->context = new state(by_openmp && knows_openmp);
    return backend;
}

// ----------------------------------------------------------------------------------- device

// Returns a text such as "attnkit 0.1.0, avx512", or the reason why attnkit cannot run.
const char *description(ggml_backend_dev_t)
{
    static const std::string text = [] {
        const std::string version = std::string("attnkit ") + attnkit_version() + ", ";
        try {
            return version + attnkit::isa_choose().prefill;
        } catch (const attnkit::error &problem) {
            return version + problem.what();
        }
    }();
    return text.c_str();
}

void properties(ggml_backend_dev_t device, ggml_backend_dev_props *props)
{
    *props = ggml_backend_dev_props{};
    props->name = name;
    props->description = description(device);
    props->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
    props->caps.mmap_support = true;
}

ggml_backend_device_i device_interface()
{
    ggml_backend_device_i made = {};
    made.get_name = [](ggml_backend_dev_t) { return name; };
    made.get_description = description;
    made.get_memory = [](ggml_backend_dev_t, size_t *free, size_t *total) {
        *free = *total = 0; // tensors are in the memory of the CPU backend
    };
    made.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; };
    made.get_props = properties;
    made.init_backend = init_backend;
    made.get_buffer_type = [](ggml_backend_dev_t) { return ggml_backend_cpu_buffer_type(); };
    made.supports_op = supports_op;
    made.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
        return ggml_backend_buft_is_host(type);
    };
    return made;
}

// --------------------------------------------------------------------------------- registry

ggml_backend_dev_t device(ggml_backend_reg_t reg, size_t)
{
    static ggml_backend_device made = {device_interface(), reg, nullptr};
    return &made;
}

void *function(ggml_backend_reg_t, const char *wanted)
{
    return std::strcmp(wanted, "ggml_backend_set_n_threads") == 0
               ? reinterpret_cast<void *>(set_n_threads)
               : nullptr;
}

ggml_backend_reg make_registry()
{
    ggml_backend_reg made = {};
    made.api_version = GGML_BACKEND_API_VERSION;
    made.iface.get_name = [](ggml_backend_reg_t) { return name; };
    made.iface.get_device_count = [](ggml_backend_reg_t) -> size_t { return 1; };
    made.iface.get_device = device;
    made.iface.get_proc_address = function;
    return made;
}

ggml_backend_reg_t registry()
{
    static ggml_backend_reg made = make_registry();
    if (!is_built_for_this_ggml()) {
        GGML_LOG_ERROR("attnkit: built for ggml %s, whose tensor struct differs in ggml %s, "
                       "which is loaded here: build attnkit with its sources (docs/llamacpp.md)\n",
                       ATTNKIT_GGML_VERSION, ggml_version());
        return nullptr;
    }
    if (std::strcmp(ggml_version(), ATTNKIT_GGML_VERSION) != 0)
        GGML_LOG_WARN("attnkit: built for ggml %s, runs with ggml %s\n", ATTNKIT_GGML_VERSION,
                      ggml_version());
    return &made;
}

} // namespace

} // namespace attnkit_ggml

GGML_BACKEND_DL_IMPL(attnkit_ggml::registry)
