// SPDX-License-Identifier: Apache-2.0
//
// An attention as attnkit takes it: the structs of a call, filled from Python's arguments, and the
// arrays to which the structs point. The plans of a thread's last calls are kept, so that a call
// with the same description is not planned again.
#ifndef ATTNKIT_PYTHON_CALL_H
#define ATTNKIT_PYTHON_CALL_H

#include "python/core/array.h"
#include "python/core/cache.h"
#include "python/core/names.h"

#include <vector>

namespace attnkit_python
{

// The structs that attnkit gets. Groups of options that are not used are zero.
struct description {
    attnkit_attention_args args;
    attnkit_kv_storage storage;
    attnkit_pages pages;
    attnkit_visibility visibility;
    attnkit_window window;
    attnkit_score_mods scores;
    attnkit_states states;
    attnkit_weights_out weights;
    int64_t threads;
};

// Sets the pointers between the structs: args points to the groups that are used, `storage` to
// `pages`, and `visibility` to `window`. A pointer to a group that is not used becomes NULL.
void link(description &d);

// Integers of a call, from an array, a list, a tuple or a single number. `own_` holds the numbers
// of a list or tuple, or copies of the single number.
class integers
{
  public:
    // Reads `count` integers; a single number stands for all of them.
    void read(PyObject *object, const char *name, int64_t count);
    // Reads cu_seqlens of any length. Returns the number of sequences, which is one less than the
    // length.
    int64_t read_offsets(PyObject *object, const char *name);
    attnkit_ints ints() const;

  private:
    array array_;
    std::vector<int64_t> own_;
    const void *data_ = nullptr;
    attnkit_int_type type_ = ATTNKIT_INT64;
    int64_t length_ = 0;
};

// The shape of a layer's attention.
struct layer_shape {
    int64_t batch, q_heads, q_len, kv_len;
};

class call
{
  public:
    // Reads q, k and v, whose shapes follow torch: all dimensions before the heads are the batch.
    void read_tensors(PyObject *const *values);
    // Reads packed q, k and v: [rows][heads][elements], with cu_seqlens.
    void read_packed(PyObject *const *values);
    // Reads q, and the cache that has k and v.
    void read_cached(PyObject *const *values);
    // Reads only the cache: k and v, their scales and their pages.
    void read_storage(PyObject *cache);
    // Reads the options of a layer with the given shape, and its cache if there is one.
    void read_layer(const layer_shape &shape, PyObject *const *values);
    // Reads the options: threads, scale, arithmetic, positions, lengths, window, mask, bias,
    // softcap, sinks, ALiBi, dropout and states.
    void read_options(PyObject *const *values);
    // Takes the given `out`, or makes a new array. Makes lse and weights if the call asks for them.
    // Does nothing if the call writes state_out.
    void read_outputs(PyObject *const *values);
    // Runs the call by a plan of this thread, without Python's lock.
    void run();
    // Returns out, or a tuple of out and the other results that the call asks for. Returns None if
    // the call writes state_out.
    nb::object result();

    description d = {};
    int64_t kv_len = 0; // keys of the call; with a cache, the capacity of the cache

  private:
    void read_arithmetic(PyObject *const *values);
    void read_mask(PyObject *object);
    void read_bias(PyObject *object);
    void read_positions(PyObject *const *values);
    void read_window(PyObject *object);
    void read_scores(PyObject *const *values);
    void read_dropout(PyObject *const *values);
    void read_states(PyObject *const *values);
    attnkit_state state_of(PyObject *object, array *arrays, const char *name);
    const int64_t *score_shape(int64_t columns);
    void shape_mask(array &a);

    array q_, k_, v_, out_, mask_, bias_, sinks_, slopes_, seeds_;
    array states_[6];
    cache cache_;
    integers q_offsets_, kv_lens_, cu_q_, cu_kv_;
    std::vector<uint64_t> own_seeds_;
    nb::object out_object_, lse_object_, weights_object_;
    int ndim_ = 0;                       // dimensions of q
    int64_t shape_[most_dims + 1] = {};  // shape of q, as given
    int64_t scores_[most_dims + 1] = {}; // shape to which masks and biases are broadcast
    bool is_packed_ = false;
};

// Runs the attention by a plan of this thread. If this thread has no plan that fits, makes a plan.
// Releases Python's lock during the run.
void run_planned(description &d);

// As run_planned, but does not touch Python's lock. The caller may hold the lock or not. `threads`
// is the caller's parallel-for, or NULL if d.threads is 1. Throws `refused`.
using parallel_for_function = void(void *pool, int64_t n, void (*task)(void *arg, int64_t i),
                                   void *arg);
void run_without_lock(description &d, parallel_for_function *threads);

// Lets each thread make its plans again, because a plan keeps the unit that it was made with.
void forget_plans();

// Returns whether the elements of an array are bool.
bool is_mask_of_truths(PyObject *object);

// Returns the workspace of this thread, which has at least `bytes` bytes.
void *workspace(size_t bytes);

// Describes a run on `threads` threads.
attnkit_exec exec_of(int64_t threads);
int64_t read_threads(PyObject *object);

} // namespace attnkit_python

#endif
