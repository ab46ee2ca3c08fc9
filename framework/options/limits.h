#pragma once

#include <cstdint>

// Upper limits that options of several components share. With values up to these limits no count exceeds 64 bits; no
// real run comes near them.

namespace tessera::options {

inline constexpr std::int64_t most_steps = 1'000'000'000'000;        ///< steps of a run, of an interval, of a schedule
inline constexpr std::int64_t most_samples = 1'000'000'000'000'000;  ///< samples of a run
inline constexpr std::int64_t most_minutes = 10'000'000;             ///< a duration in minutes: 19 years
/// Layers of a model; `tessera check` counts their parameters in 0.3 s.
inline constexpr std::int64_t most_layers = 4096;
inline constexpr std::int64_t most_experts = 65536;  ///< experts of a layer
/// Experts of all layers of a model together: each has two named weights, whose bookkeeping takes some hundred bytes.
inline constexpr std::int64_t most_experts_of_model = std::int64_t{1} << 18;
inline constexpr std::int64_t most_places = std::int64_t{1} << 30;        ///< tokens of a sequence, and positions
inline constexpr std::int64_t most_tokens_known = 0x7FFFFFFF;             ///< tokens of a vocabulary: ids have 31 bits
inline constexpr std::int64_t most_step_samples = std::int64_t{1} << 30;  ///< samples of one step over all ranks
inline constexpr std::int64_t most_threads = 1024;                        ///< threads of one process
inline constexpr std::int64_t most_ranks = std::int64_t{1} << 20;         ///< ranks of a run
inline constexpr std::int64_t most_predictions = 8;                       ///< multi-token prediction layers
inline constexpr double most_rate = 1e38;  ///< learning rates, weight decays, standard deviations: fp32 represents them
inline constexpr double most_factor = 1e6;  ///< factors and divisors

}  // namespace tessera::options
