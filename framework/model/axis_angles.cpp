#include "framework/model/axis_angles.h"

#include <algorithm>
#include <numeric>

#include "framework/kernels/type_conversion.h"

namespace tessera::model {
namespace {

using Positions = std::span<const std::int32_t>;

/// Angles of `tokens` tokens, whose cosines and sines the caller fills in.
struct Filled {
  nn::TokenAngles angles;
  std::span<float> cosine, sine;
};

Filled uninitialized(autograd::Tape& tape, std::size_t tokens, std::int64_t rotary_dim, kernels::RotaryLayout layout) {
  const auto pairs = static_cast<std::size_t>(rotary_dim / 2);
  const auto rows = tape.keep_array<std::int32_t>(tokens);
  std::iota(rows.begin(), rows.end(), 0);
  Filled out{.angles = {.rotary_dim = rotary_dim, .layout = layout, .cosine = {}, .sine = {}, .rows = rows},
             .cosine = tape.keep_array<float>(tokens * pairs),
             .sine = tape.keep_array<float>(tokens * pairs)};
  out.angles.cosine = out.cosine;
  out.angles.sine = out.sine;
  return out;
}

void check(Positions positions, std::int64_t table_rows) {
  for (const auto position : positions)
    if (position < 0 || position >= table_rows)
      throw ShapeError(text("rotary embedding: position ", position, ", but the model has ", table_rows, " positions"));
}

/// Rounds to `type` and back.
void round_to(DType type, std::span<float> values, kernels::Threads& threads) {
  if (type == DType::float32 || threads.idle()) return;
  std::vector<std::byte> narrow(values.size() * size_of(type));
  const Tensor rounded(narrow, type, {static_cast<std::int64_t>(values.size())});
  kernels::narrow_range(values, rounded);
  kernels::widen_range(rounded, values);
}

}  // namespace

nn::TokenAngles sectioned_angles(autograd::Tape& tape, const autograd::RotaryTables& tables,
                                 std::span<const std::int64_t> sections, Positions positions, std::int64_t samples,
                                 std::int64_t length, DType rounded) {
  const auto pairs = static_cast<std::size_t>(tables.rotary_dim / 2), tokens = static_cast<std::size_t>(length);
  const auto axes = positions.size() / (static_cast<std::size_t>(samples) * tokens);
  must(axes == 1 || axes == sections.size(), "positions have one axis, or one for each section");
  check(positions, static_cast<std::int64_t>(tables.cosine.size() / pairs));
  auto out = uninitialized(tape, static_cast<std::size_t>(samples) * tokens, tables.rotary_dim, tables.layout);
  tape.threads().parallel_for(static_cast<std::size_t>(samples) * tokens, 64, [&](std::size_t first, std::size_t last) {
    for (auto token = first; token < last; ++token) {
      const auto of_sample = positions.subspan(token / tokens * axes * tokens, axes * tokens);
      std::size_t pair = 0;
      for (std::size_t section = 0; section < sections.size(); ++section) {
        const auto axis = axes == 1 ? 0 : section, count = static_cast<std::size_t>(sections[section]);
        const auto from = static_cast<std::size_t>(of_sample[axis * tokens + token % tokens]) * pairs + pair;
        std::ranges::copy(tables.cosine.subspan(from, count), out.cosine.begin() + token * pairs + pair);
        std::ranges::copy(tables.sine.subspan(from, count), out.sine.begin() + token * pairs + pair);
        pair += count;
      }
    }
  });
  round_to(rounded, out.cosine, tape.threads());
  round_to(rounded, out.sine, tape.threads());
  return out.angles;
}

nn::TokenAngles grid_angles(autograd::Tape& tape, std::int64_t rotary_dim, double base, Positions rows,
                            Positions columns) {
  must(rotary_dim > 0 && rotary_dim % 4 == 0, "half of the rotary dimensions are for rows, half for columns");
  must(rows.size() == columns.size(), "a patch has a row and a column");
  const auto half = static_cast<std::size_t>(rotary_dim / 4);
  const auto side =
      1 + std::max(rows.empty() ? 0 : std::ranges::max(rows), columns.empty() ? 0 : std::ranges::max(columns));
  const nn::RotaryEmbedding along(rotary_dim / 2, base, kernels::RotaryLayout::half, side);
  const auto tables = along.tables(tape.threads(), {});
  auto out = uninitialized(tape, rows.size(), rotary_dim, kernels::RotaryLayout::half);
  tape.threads().parallel_for(rows.size(), 64, [&](std::size_t first, std::size_t last) {
    for (auto patch = first; patch < last; ++patch)
      for (const auto axis : {0, 1}) {
        const auto from = static_cast<std::size_t>(axis == 0 ? rows[patch] : columns[patch]) * half;
        const auto to = (2 * patch + static_cast<std::size_t>(axis)) * half;
        std::ranges::copy(tables.cosine.subspan(from, half), out.cosine.begin() + to);
        std::ranges::copy(tables.sine.subspan(from, half), out.sine.begin() + to);
      }
  });
  return out.angles;
}

}  // namespace tessera::model
