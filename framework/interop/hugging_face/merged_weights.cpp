#include "framework/interop/hugging_face/merged_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "framework/base/error.h"
#include "framework/checkpoint/copy_converted.h"

namespace tessera::hugging_face {
namespace {

const std::string merged_a = ".lora_A.weight", merged_b = ".lora_B.weight", merged_m = ".lora_magnitude.weight";
const std::string word_table = "embedding.word_embeddings";

std::vector<float> values_of(const checkpoint::WeightSource& source, const std::string& name) {
  const auto shape = source.shape(name);
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  source.read(name, Tensor(std::span(values), shape));
  return values;
}

/// Factors of one adapter, [rank, in] and [out, rank], and its magnitudes, if it has some.
struct MergedFactors {
  std::vector<float> a, b, magnitudes;
  std::size_t rank, in, out;
  double scale;
};

/// w = w + s B A, or with magnitudes (m / n)(w + s B A), for the rows of w in the order of B's.
void merge_rows(kernels::Threads& threads, const MergedFactors& f, const std::vector<std::int64_t>& rows,
                std::span<float> w) {
  threads.parallel_for(f.out, 4, [&](std::size_t first, std::size_t last) {
    std::vector<double> sum(f.in);
    for (auto row = first; row < last; ++row) {
      const auto own = w.subspan(static_cast<std::size_t>(rows[row]) * f.in, f.in);
      std::fill(sum.begin(), sum.end(), 0.0);
      for (std::size_t r = 0; r < f.rank; ++r) {
        const double factor = f.b[row * f.rank + r];
        for (std::size_t c = 0; c < f.in; ++c) sum[c] += factor * static_cast<double>(f.a[r * f.in + c]);
      }
      double squares = 0;
      for (std::size_t c = 0; c < f.in; ++c) {
        sum[c] = static_cast<double>(own[c]) + f.scale * sum[c];
        squares += sum[c] * sum[c];
      }
      const double size = f.magnitudes.empty() ? 1 : static_cast<double>(f.magnitudes[row]) / std::sqrt(squares);
      for (std::size_t c = 0; c < f.in; ++c) own[c] = static_cast<float>(size * sum[c]);
    }
  });
}

/// The table of an embedding: row v gets s sum_r B[:, r] A[r, v], and with magnitudes each column c is then multiplied
/// by m_c over its norm.
void merge_table(kernels::Threads& threads, const MergedFactors& f, std::span<float> w) {
  threads.parallel_for(f.out, 16, [&](std::size_t first, std::size_t last) {
    std::vector<double> column(f.in);
    for (auto c = first; c < last; ++c) {
      double squares = 0;
      for (std::size_t v = 0; v < f.in; ++v) {
        double sum = 0;
        for (std::size_t r = 0; r < f.rank; ++r)
          sum += static_cast<double>(f.b[c * f.rank + r]) * static_cast<double>(f.a[r * f.in + v]);
        column[v] = static_cast<double>(w[v * f.out + c]) + f.scale * sum;
        squares += column[v] * column[v];
      }
      const double size = f.magnitudes.empty() ? 1 : static_cast<double>(f.magnitudes[c]) / std::sqrt(squares);
      for (std::size_t v = 0; v < f.in; ++v) w[v * f.out + c] = static_cast<float>(size * column[v]);
    }
  });
}

}  // namespace

MergedWeights::MergedWeights(const checkpoint::WeightSource& base, const checkpoint::WeightSource& adapter,
                             const PeftNames& names, Scale scale, kernels::Threads& threads)
    : base_(base), adapter_(adapter), names_(names), scale_(std::move(scale)), threads_(threads) {
  for (const auto& name : base.names())
    if (names.row(name) != nullptr) all_.push_back(name);
  std::string problems;
  for (const auto& name : adapter.names()) {
    if (base.has(name)) continue;
    if (names.row(name) != nullptr) {
      all_.push_back(name);
      continue;
    }
    if (name.ends_with(merged_b) || name.ends_with(merged_m)) continue;
    const auto ours = name.ends_with(merged_a) ? name.substr(0, name.size() - merged_a.size()) : "";
    const auto modules = names.of_ours(ours);
    if (modules.empty() || !base.has(modules.front()->row->name)) {
      problems += text("\n  ", name, ": the base has no such layer");
      continue;
    }
    adapters_[modules.front()->row->name].push_back(ours);
  }
  if (!problems.empty())
    throw ConfigError(
        text(adapter.folder().string(), ": the adapter does not belong to ", base.folder().string(), ":", problems));
}

bool MergedWeights::has(const std::string& name) const {
  return std::find(all_.begin(), all_.end(), name) != all_.end();
}

std::vector<std::string> MergedWeights::changed() const {
  std::vector<std::string> all;
  for (const auto& name : all_)
    if (adapter_.has(name) || adapters_.contains(name)) all.push_back(name);
  return all;
}

void MergedWeights::read(const std::string& name, const Tensor& into) const {
  const auto layers = adapters_.find(name);
  if (layers == adapters_.end() && !adapter_.has(name)) return base_.read(name, into);
  const auto whole = shape(name);
  auto w = values_of(source_of(name), name);
  if (adapter_.has(name)) adapter_.read(name, Tensor(std::span(w), whole));
  if (layers != adapters_.end())
    for (const auto& ours : layers->second) add(ours, name, w, whole);
  checkpoint::copy_converted(Tensor(std::span(w), whole), into);
}

/// The rows of our weight that the rows of an adapter's B belong to.
std::vector<std::int64_t> MergedWeights::rows_of(const std::string& ours, const WeightRow& row,
                                                 const Shape& whole) const {
  const auto count = static_cast<std::size_t>(whole[0]);
  const auto module = names_.of_ours(ours).front();
  std::vector<std::int64_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  if (module->layer == ours) return all;  // a whole layer
  auto alone = row;
  std::erase(alone.steps, WeightStep::transpose);
  const auto bytes = std::as_bytes(std::span(all));
  const auto parts = part_shapes_of(alone, Shape{whole[0]});
  const auto theirs = to_theirs(alone, {bytes.begin(), bytes.end()}, sizeof(std::int64_t), parts);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < module->index; ++i) before += parts[i][0];
  std::vector<std::int64_t> own(static_cast<std::size_t>(parts[module->index][0]));
  std::memcpy(own.data(), theirs.data() + static_cast<std::size_t>(before) * sizeof(std::int64_t),
              own.size() * sizeof(std::int64_t));
  return own;
}

void MergedWeights::add(const std::string& ours, const std::string& weight, std::span<float> w,
                        const Shape& whole) const {
  const auto a = adapter_.shape(ours + merged_a), b = adapter_.shape(ours + merged_b);
  MergedFactors f{values_of(adapter_, ours + merged_a),
                  values_of(adapter_, ours + merged_b),
                  {},
                  static_cast<std::size_t>(a[0]),
                  static_cast<std::size_t>(a[1]),
                  static_cast<std::size_t>(b[0]),
                  scale_(ours, a[0])};
  if (adapter_.has(ours + merged_m)) f.magnitudes = values_of(adapter_, ours + merged_m);
  if (ours == word_table) return merge_table(threads_, f, w);
  merge_rows(threads_, f, rows_of(ours, *names_.row(weight), whole), w);
}

}  // namespace tessera::hugging_face
