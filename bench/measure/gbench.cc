// SPDX-License-Identifier: Apache-2.0
//
// The only C++ of the benches: Google Benchmark behind functions that C can call.
#include "bench/measure/gbench.h"

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace
{

const char cpu_time[] =
    "cpu_seconds"; // name of the counter that carries the CPU time from a benchmark to the reporter

benchmark::State &cast(gbench_state *state)
{
    return *reinterpret_cast<benchmark::State *>(state);
}

// Prints nothing: main.c prints the table.
class Silence : public benchmark::BenchmarkReporter
{
  public:
    bool ReportContext(const Context &) override
    {
        return true;
    }
    void ReportRuns(const std::vector<Run> &) override
    {
    }
};

// Removes "/iterations:1/manual_time" from names, and reports the CPU time of a call. Google
// Benchmark's own CPU time would include the time between calls.
class Json : public benchmark::JSONReporter
{
  public:
    void ReportRuns(const std::vector<Run> &runs) override
    {
        std::vector<Run> plain = runs;
        for (Run &run : plain) {
            run.run_name.iterations.clear();
            run.run_name.time_type.clear();
            const auto cpu = run.counters.find(cpu_time);
            if (cpu == run.counters.end())
                continue;
            run.cpu_accumulated_time = cpu->second.value * static_cast<double>(run.iterations);
            run.counters.erase(cpu);
        }
        JSONReporter::ReportRuns(plain);
    }
};

} // namespace

void gbench_register(const char *name, void (*bench)(gbench_state *, void *), void *arg)
{
    const auto call = [bench, arg](benchmark::State &state) {
        bench(reinterpret_cast<gbench_state *>(&state), arg);
    };
    benchmark::RegisterBenchmark(name, call)->Iterations(1)->UseManualTime();
}

void gbench_context(const char *key, const char *value)
{
    benchmark::AddCustomContext(key, value);
}

void gbench_run(char *argv0, int repetitions, const char *json)
{
    std::vector<std::string> words = {"--benchmark_repetitions=" + std::to_string(repetitions),
                                      "--benchmark_out_format=json"};
    if (json)
        words.push_back(std::string("--benchmark_out=") + json);
    std::vector<char *> argv = {argv0};
    for (std::string &word : words)
        argv.push_back(&word[0]);
    int argc = static_cast<int>(argv.size());
    argv.push_back(nullptr);

    Silence silence;
    Json file;
    benchmark::Initialize(&argc, argv.data());
    benchmark::RunSpecifiedBenchmarks(&silence, json ? &file : nullptr, ".");
    benchmark::Shutdown();
}

bool gbench_keep_running(gbench_state *state)
{
    return cast(state).KeepRunning();
}

void gbench_set_iteration_time(gbench_state *state, double seconds, double cpu_seconds)
{
    cast(state).SetIterationTime(seconds);
    gbench_counter(state, cpu_time, cpu_seconds);
}

void gbench_counter(gbench_state *state, const char *name, double value)
{
    cast(state).counters[name] = benchmark::Counter(value);
}

void gbench_rate(gbench_state *state, const char *name, double amount)
{
    cast(state).counters[name] = benchmark::Counter(amount, benchmark::Counter::kIsRate);
}

void gbench_label(gbench_state *state, const char *text)
{
    cast(state).SetLabel(text);
}

void gbench_skip(gbench_state *state, const char *message)
{
    cast(state).SkipWithError(message);
}
