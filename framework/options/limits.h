#pragma once

#include <cstdint>

// Upper limits that options of several components share. Below them nothing that is counted leaves 64 bits, and no real
// run comes near them.

namespace tessera::options {

inline constexpr std::int64_t most_steps = 1'000'000'000'000;        ///< of a run, and of intervals and schedules
inline constexpr std::int64_t most_samples = 1'000'000'000'000'000;  ///< of a run
inline constexpr std::int64_t most_minutes = 10'000'000;             ///< 19 years
inline constexpr std::int64_t most_layers = 4096;    ///< of a model; `check` counts them in a third of a second
inline constexpr std::int64_t most_experts = 65536;  ///< of a layer
/// Of all layers of a model: each is two weights with names, some hundred bytes.
inline constexpr std::int64_t most_experts_of_model = std::int64_t{1} << 18;
inline constexpr std::int64_t most_places = std::int64_t{1} << 30;        ///< tokens of a sequence, and its positions
inline constexpr std::int64_t most_tokens_known = 0x7FFFFFFF;             ///< of a vocabulary: ids are 31 bits
inline constexpr std::int64_t most_step_samples = std::int64_t{1} << 30;  ///< of one step over all ranks
inline constexpr std::int64_t most_threads = 1024;                        ///< of one process
inline constexpr std::int64_t most_ranks = std::int64_t{1} << 20;         ///< of a run
inline constexpr std::int64_t most_predictions = 8;                       ///< layers of multi-token prediction
inline constexpr double most_rate = 1e38;   ///< of learning rates, weight decays, deviations: fp32 holds them
inline constexpr double most_factor = 1e6;  ///< of what multiplies or divides

}  // namespace tessera::options
