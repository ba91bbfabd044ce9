// SPDX-License-Identifier: Apache-2.0
// attnkit for C++17: exceptions instead of statuses, and memory that frees itself. This header has
// thin inline functions over attnkit.h, which is the manual. Structs, fields and constants are the
// same as in attnkit.h.
//
//     attnkit::workspace scratch; // serves any number of calls, one after the other
//     auto args = attnkit::make<attnkit_attention_args>(); // size is set, all other fields are 0
//     args.flags = ATTNKIT_CAUSAL;
//     args.align = ATTNKIT_ALIGN_UPPER_LEFT;
//     args.batch = 1;
//     args.q_heads = 8;
//     args.kv_heads = 2;
//     args.q_len = args.kv_len = n;
//     args.head_dim = 64;
//     args.q = attnkit::tensor(q.data());
//     args.k = attnkit::tensor(k.data());
//     args.v = attnkit::tensor(v.data());
//     args.out = attnkit::tensor(out.data());
//     attnkit::attention(args, scratch);
//
// Functions have the names of the C functions without attnkit_, and throw attnkit::error where the
// C functions return an error. A call that needs a workspace has three forms:
//
//     attention(args, scratch)          on one thread, in a workspace that grows as needed
//     attention(args, scratch, exec)    with an instruction set, or in a parallel-for
//     attention(args, exec)             as in C, in the workspace of exec; for threads of your own
//
// No exception may leave the functions that exec points to: code in C calls these functions.
#ifndef ATTNKIT_HPP
#define ATTNKIT_HPP

#include <attnkit.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>

namespace attnkit
{

// ------------------------------------------------------------------------------------- errors

// An error of a call. what() is the message, which names the argument and its value.
class error : public std::runtime_error
{
  public:
    error(attnkit_status status, const char *message) : std::runtime_error(message), status_(status)
    {
    }

    attnkit_status status() const noexcept
    {
        return status_;
    }

  private:
    attnkit_status status_;
};

// Calls a function of attnkit.h whose last parameter is the message. Throws error if the function
// returns an error.
template <class Function, class... Arguments> void call(Function *function, Arguments... arguments)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_status status = function(arguments..., message);
    if (status != ATTNKIT_OK)
        throw error(status, message);
}

// ------------------------------------------------------------------------------------ structs

// Returns a struct with default values, as attnkit_..._init() sets them.
template <class Struct> Struct make() noexcept
{
    Struct made{};
    made.size = sizeof made;
    return made;
}

// Returns a dense tensor. layout may be ATTNKIT_TILED.
inline attnkit_tensor tensor(const void *data, attnkit_type type = ATTNKIT_F32,
                             uint32_t layout = 0) noexcept
{
    attnkit_tensor made{};
    made.data = data;
    made.type = type;
    made.layout = layout;
    return made;
}

// Returns the tensor `made` with these strides: the bytes from one batch entry, one head and one
// row to the next.
inline attnkit_tensor strided(attnkit_tensor made, int64_t batch, int64_t head,
                              int64_t row) noexcept
{
    made.strides[0] = batch;
    made.strides[1] = head;
    made.strides[2] = row;
    made.layout |= ATTNKIT_STRIDED;
    return made;
}

inline attnkit_ints ints(const int64_t *data) noexcept
{
    return attnkit_ints{data, ATTNKIT_INT64, 0};
}

inline attnkit_ints ints(const int32_t *data) noexcept
{
    return attnkit_ints{data, ATTNKIT_INT32, 0};
}

// ------------------------------------------------------------------------------------- memory

// Workspace of calls and runs. A workspace grows as needed, and never shrinks.
class workspace
{
  public:
    workspace() = default;
    explicit workspace(std::size_t bytes)
    {
        reserve(bytes);
    }

    // Makes the workspace at least `bytes` bytes large. A workspace that grows loses its contents.
    void reserve(std::size_t bytes)
    {
        if (bytes <= size_)
            return;
        data_.reset();
        size_ = 0;
        data_.reset(new unsigned char[bytes]);
        size_ = bytes;
    }

    void *data() const noexcept
    {
        return data_.get();
    }

    std::size_t size() const noexcept
    {
        return size_;
    }

    // Returns a copy of exec that has this workspace.
    attnkit_exec in(attnkit_exec exec) const noexcept
    {
        exec.workspace = data();
        exec.workspace_size = size();
        return exec;
    }

  private:
    std::unique_ptr<unsigned char[]> data_;
    std::size_t size_ = 0;
};

// ------------------------------------------------------------------------------ shared by calls

namespace detail
{

struct attention_calls {
    using args = attnkit_attention_args;
    using data = attnkit_attention_data;
    static constexpr auto workspace = attnkit_attention_workspace;
    static constexpr auto call = attnkit_attention;
    static constexpr auto plan_size = attnkit_attention_plan_size;
    static constexpr auto plan = attnkit_attention_plan;
    static constexpr auto plan_workspace = attnkit_attention_plan_workspace;
    static constexpr auto run = attnkit_attention_run;
};

struct append_calls {
    using args = attnkit_append_args;
    using data = attnkit_append_data;
    static constexpr auto workspace = attnkit_append_workspace;
    static constexpr auto call = attnkit_append;
    static constexpr auto plan_size = attnkit_append_plan_size;
    static constexpr auto plan = attnkit_append_plan;
    static constexpr auto plan_workspace = attnkit_append_plan_workspace;
    static constexpr auto run = attnkit_append_run;
};

struct linear_calls {
    using args = attnkit_linear_args;
    using data = attnkit_linear_data;
    static constexpr auto workspace = attnkit_linear_workspace;
    static constexpr auto call = attnkit_linear;
    static constexpr auto plan_size = attnkit_linear_plan_size;
    static constexpr auto plan = attnkit_linear_plan;
    static constexpr auto plan_workspace = attnkit_linear_plan_workspace;
    static constexpr auto run = attnkit_linear_run;
};

struct layer_calls {
    using args = attnkit_layer_args;
    using data = attnkit_layer_data;
    static constexpr auto workspace = attnkit_layer_workspace;
    static constexpr auto call = attnkit_layer;
    static constexpr auto plan_size = attnkit_layer_plan_size;
    static constexpr auto plan = attnkit_layer_plan;
    static constexpr auto plan_workspace = attnkit_layer_plan_workspace;
    static constexpr auto run = attnkit_layer_run;
};

template <class Calls>
std::size_t workspace_size(const typename Calls::args &args, const attnkit_exec &exec)
{
    std::size_t bytes = 0;
    call(Calls::workspace, &args, &exec, &bytes);
    return bytes;
}

template <class Calls>
void make_call(const typename Calls::args &args, workspace &scratch, const attnkit_exec &exec)
{
    scratch.reserve(workspace_size<Calls>(args, exec));
    const attnkit_exec whole = scratch.in(exec);
    call(Calls::call, &args, &whole);
}

} // namespace detail

// -------------------------------------------------------------------------------------- plans

// A plan and its memory. Several threads may run a plan at once, each with a workspace of its own.
template <class Calls> class basic_plan
{
  public:
    using args_type = typename Calls::args;
    using data_type = typename Calls::data;

    // Makes a plan of the call that args describe, for at most exec.threads threads and the
    // instruction set of exec.
    explicit basic_plan(const args_type &args, const attnkit_exec &exec = make<attnkit_exec>())
        : memory_(::operator new(Calls::plan_size(), alignment))
    {
        call(Calls::plan, &args, &exec, memory_.get(), Calls::plan_size());
        call(Calls::plan_workspace, memory_.get(), &workspace_size_);
    }

    // Returns the bytes of workspace that any run needs.
    std::size_t workspace_size() const noexcept
    {
        return workspace_size_;
    }

    void run(const data_type &data, const attnkit_exec &exec) const
    {
        call(Calls::run, memory_.get(), &data, &exec);
    }

    void run(const data_type &data, workspace &scratch,
             const attnkit_exec &exec = make<attnkit_exec>()) const
    {
        scratch.reserve(workspace_size_);
        run(data, scratch.in(exec));
    }

    // Returns the plan, for functions of attnkit.h.
    const void *get() const noexcept
    {
        return memory_.get();
    }

  private:
    static constexpr std::align_val_t alignment{16};

    struct free_memory {
        void operator()(void *memory) const noexcept
        {
            ::operator delete(memory, alignment);
        }
    };

    std::unique_ptr<void, free_memory> memory_;
    std::size_t workspace_size_ = 0;
};

using attention_plan = basic_plan<detail::attention_calls>;
using append_plan = basic_plan<detail::append_calls>;
using linear_plan = basic_plan<detail::linear_calls>;
using layer_plan = basic_plan<detail::layer_calls>;

// -------------------------------------------------------------------------------------- calls

inline std::size_t attention_workspace(const attnkit_attention_args &args,
                                       const attnkit_exec &exec = make<attnkit_exec>())
{
    return detail::workspace_size<detail::attention_calls>(args, exec);
}

inline void attention(const attnkit_attention_args &args, const attnkit_exec &exec)
{
    call(attnkit_attention, &args, &exec);
}

inline void attention(const attnkit_attention_args &args, workspace &scratch,
                      const attnkit_exec &exec = make<attnkit_exec>())
{
    detail::make_call<detail::attention_calls>(args, scratch, exec);
}

inline std::size_t append_workspace(const attnkit_append_args &args,
                                    const attnkit_exec &exec = make<attnkit_exec>())
{
    return detail::workspace_size<detail::append_calls>(args, exec);
}

inline void append(const attnkit_append_args &args, const attnkit_exec &exec)
{
    call(attnkit_append, &args, &exec);
}

inline void append(const attnkit_append_args &args, workspace &scratch,
                   const attnkit_exec &exec = make<attnkit_exec>())
{
    detail::make_call<detail::append_calls>(args, scratch, exec);
}

inline std::size_t linear_workspace(const attnkit_linear_args &args,
                                    const attnkit_exec &exec = make<attnkit_exec>())
{
    return detail::workspace_size<detail::linear_calls>(args, exec);
}

inline void linear(const attnkit_linear_args &args, const attnkit_exec &exec)
{
    call(attnkit_linear, &args, &exec);
}

inline void linear(const attnkit_linear_args &args, workspace &scratch,
                   const attnkit_exec &exec = make<attnkit_exec>())
{
    detail::make_call<detail::linear_calls>(args, scratch, exec);
}

inline std::size_t layer_workspace(const attnkit_layer_args &args,
                                   const attnkit_exec &exec = make<attnkit_exec>())
{
    return detail::workspace_size<detail::layer_calls>(args, exec);
}

inline void layer(const attnkit_layer_args &args, const attnkit_exec &exec)
{
    call(attnkit_layer, &args, &exec);
}

inline void layer(const attnkit_layer_args &args, workspace &scratch,
                  const attnkit_exec &exec = make<attnkit_exec>())
{
    detail::make_call<detail::layer_calls>(args, scratch, exec);
}

// Calls that need no workspace.

inline void merge(const attnkit_merge_args &args, const attnkit_exec &exec = make<attnkit_exec>())
{
    call(attnkit_merge, &args, &exec);
}

inline void embed(const attnkit_embed_args &args, const attnkit_exec &exec = make<attnkit_exec>())
{
    call(attnkit_embed, &args, &exec);
}

inline std::size_t packed_size(const attnkit_pack_args &args)
{
    std::size_t bytes = 0;
    call(attnkit_packed_size, &args, &bytes);
    return bytes;
}

inline void pack(const attnkit_pack_args &args, const attnkit_exec &exec = make<attnkit_exec>())
{
    call(attnkit_pack, &args, &exec);
}

inline std::size_t layer_packed_size(const attnkit_layer_weights &weights)
{
    std::size_t bytes = 0;
    call(attnkit_layer_packed_size, &weights, &bytes);
    return bytes;
}

inline void layer_pack(const attnkit_layer_weights &weights, void *packed, std::size_t bytes,
                       const attnkit_exec &exec = make<attnkit_exec>())
{
    call(attnkit_layer_pack, &weights, packed, bytes, &exec);
}

// ------------------------------------------------------------------------- instruction sets

inline attnkit_isa_info isa_get(int32_t index)
{
    auto info = make<attnkit_isa_info>();
    call(attnkit_isa_get, index, &info);
    return info;
}

inline attnkit_unit_info unit_get(int32_t index)
{
    auto info = make<attnkit_unit_info>();
    call(attnkit_unit_get, index, &info);
    return info;
}

// Enables a unit for this process, or throws error with the reason.
inline void enable(const char *unit)
{
    call(attnkit_enable, unit);
}

inline attnkit_isa_choice isa_choose(const char *isa = nullptr)
{
    auto choice = make<attnkit_isa_choice>();
    call(attnkit_isa_choose, isa, &choice);
    return choice;
}

} // namespace attnkit

#endif // ATTNKIT_HPP
