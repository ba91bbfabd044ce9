// SPDX-License-Identifier: Apache-2.0
//
// A backend of ggml that computes GGML_OP_FLASH_ATTN_EXT by attnkit. A program in which ggml reads
// GGML_BACKEND_PATH loads the backend without a change of the program. The backend is an
// accelerator beside the CPU backend and works in the buffers of the CPU backend, so no tensor is
// copied. In a program without GPUs, the backend also takes the other ops of the CPU backend,
// except fused ops. It gives these other ops to a CPU backend of its own. Attention ops that
// attnkit does not support are left to the program's CPU backend. ggml's log has each reason once.
#define GGML_BACKEND_DL // before ggml's headers: exports the function that a program looks up
#define GGML_BACKEND_SHARED
#define GGML_BACKEND_BUILD
#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml-impl.h>
#include <ggml.h>

#include "ggml/graph.h"
#include "ggml/op.h"
#include "ggml/probe.h"

#include <attnkit.hpp>

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace attnkit_ggml
{

namespace
{

constexpr char name[] = "ATTNKIT";

// ------------------------------------------------------------------------------- which ops

// Returns whether the backend takes the op. A program asks about an op many times, but each reason
// is logged only once. A reason ends with the op's q, K and V in parentheses. Reasons with the same
// text before their first parenthesis count as one reason.
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

// Returns whether the program has devices that are neither CPUs nor accelerators.
bool has_gpu()
{
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        const auto type = ggml_backend_dev_type(ggml_backend_dev_get(i));
        if (type != GGML_BACKEND_DEVICE_TYPE_CPU && type != GGML_BACKEND_DEVICE_TYPE_ACCEL)
            return true;
    }
    return false;
}

// Whether the backend takes other ops than attention. If it takes attention alone, ggml splits a
// graph before and after each attention op, and starts its threads for each piece of the graph. In
// a program with GPUs the backend takes attention alone, because ggml would otherwise move ops from
// a GPU to this backend. takes_all is set when the program makes a backend.
std::atomic<bool> takes_all{false};

ggml_backend_dev_t cpu_device()
{
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

// Returns whether an op is fused. The backend does not take fused ops, because llama.cpp does not
// use a fused op, such as GATED_DELTA_NET, if the op and its layer belong to different devices. In
// ggml's list of ops, the fused ops go from GATED_DELTA_NET to the op before UNARY.
bool is_fused(ggml_op op)
{
    return op >= GGML_OP_GATED_DELTA_NET && op < GGML_OP_UNARY;
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
        return takes_all && !is_fused(op->op) && ggml_backend_dev_supports_op(cpu_device(), op);
    }
}

// ---------------------------------------------------------------------------------- backend

computer &computer_of(ggml_backend_t backend)
{
    return *static_cast<computer *>(backend->context);
}

// A program looks this function up by name. llama.cpp calls it before each graph, with the number
// of threads that the backend may use.
void set_n_threads(ggml_backend_t backend, int threads)
{
    computer_of(backend).set_threads(threads);
}

void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void *data)
{
    computer_of(backend).set_abort_callback(callback, data);
}

ggml_guid_t guid()
{
    static ggml_guid id = {0x61, 0x74, 0x74, 0x6e, 0x6b, 0x69, 0x74, 0x2e,
                           0x67, 0x67, 0x6d, 0x6c, 0x2e, 0x43, 0x50, 0x55};
    return &id;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char *)
{
    takes_all = !has_gpu();
    std::unique_ptr<computer> context;
    try {
        context = std::make_unique<computer>(cpu_device());
    } catch (const std::exception &problem) {
        GGML_LOG_ERROR("attnkit: no backend: %s\n", problem.what());
        return nullptr;
    }
    ggml_backend *const backend = new ggml_backend{};
    backend->guid = guid();
    backend->iface.get_name = [](ggml_backend_t) { return name; };
    backend->iface.free = [](ggml_backend_t b) {
        delete &computer_of(b);
        delete b;
    };
    backend->iface.graph_compute = [](ggml_backend_t b, ggml_cgraph *graph) {
        return computer_of(b).compute(graph);
    };
    backend->device = device;
    backend->context = context.release();
    return backend;
}

// ----------------------------------------------------------------------------------- device

// Returns a text such as "attnkit 0.1.0, avx512". If attnkit cannot run, the text has the reason in
// place of "avx512".
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
        return ggml_backend_dev_supports_buft(cpu_device(), type);
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
    if (std::strcmp(wanted, "ggml_backend_set_n_threads") == 0)
        return reinterpret_cast<void *>(set_n_threads);
    if (std::strcmp(wanted, "ggml_backend_set_abort_callback") == 0)
        return reinterpret_cast<void *>(set_abort_callback);
    return nullptr;
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
        GGML_LOG_ERROR("attnkit: built for ggml %s, whose tensors, ops or types differ in ggml %s, "
                       "which is loaded here: build attnkit with the sources of the loaded ggml "
                       "(docs/llamacpp.md)\n",
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
