#include "framework/nn/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/linear.h"
#include "framework/autograd/ops/residual.h"
#include "framework/kernels/expert_rows.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/magnitude.h"
#include "framework/kernels/vector.h"

namespace tessera::nn {
namespace {

/// The rows of an adapter on one rank.
struct RowsHere {
  std::vector<kernels::RowBlock> blocks;
  TensorCut cut;  ///< of the adapter's own rows
};

/// Whether `strip` continues the last strip of `cut`.
bool continues(const TensorCut& cut, const TensorCut::Strip& strip) {
  if (cut.strips.empty()) return false;
  const auto& last = cut.strips.back();
  return last.first + last.count == strip.first && last.owned == strip.owned && last.copied == strip.copied;
}

void append_strip(TensorCut& cut, const TensorCut::Strip& strip) {
  if (continues(cut, strip))
    cut.strips.back().count += strip.count;
  else
    cut.strips.push_back(strip);
}

/// `part`: the rows of the unsharded w that the adapter is for.
RowsHere rows_here(const std::vector<ElementRange>& part, const TensorCut& layer, std::int64_t out) {
  RowsHere here;
  const auto strips = layer.strips.empty() ? std::vector<TensorCut::Strip>{{0, out}} : layer.strips;
  std::int64_t in_layer = 0, in_factor = 0;
  for (const auto& strip : strips) {
    std::int64_t in_whole = 0;  // rows of the whole factor before this range
    for (const auto& range : part) {
      const auto first = std::max(strip.first, range.first);
      const auto count = std::min(strip.first + strip.count, range.first + range.count) - first;
      if (count > 0) {
        here.blocks.push_back({in_layer + first - strip.first, in_factor, count});
        append_strip(here.cut, {in_whole + first - range.first, count, strip.owned, strip.copied});
        in_factor += count;
      }
      in_whole += range.count;
    }
    in_layer += strip.count;
  }
  if (layer.strips.empty()) here.cut = {};
  return here;
}

}  // namespace

bool is_of_adapter(std::string_view parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight") ||
         parameter.ends_with(".lora_magnitude.weight");
}

Adapters::Adapters(const std::string& layer, std::vector<AdapterForm> forms, const Parameter& w, const TensorCut& rows,
                   const TensorCut& columns, SumOverRanks add_up)
    : Module(layer),
      forms_(std::move(forms)),
      in_(w.global_shape[1]),
      in_here_(columns.strips.empty() ? in_ : columns.extent()),
      first_column_(columns.strips.empty() ? 0 : columns.strips[0].first),
      norms_(w.leaf, std::move(add_up)) {
  must(forms_.size() <= autograd::most_adapters, "a layer has at most three adapters");
  rows_.reserve(forms_.size());  // the factors refer to its elements
  for (const auto& form : forms_) add(form, w, rows, columns);
  must(magnitudes_.empty() || magnitudes_.size() == forms_.size(), "all adapters of a layer have magnitudes, or none");
}

void Adapters::add(const AdapterForm& form, const Parameter& w, const TensorCut& rows, const TensorCut& columns) {
  const auto out = w.global_shape[0];
  const auto part = form.part.name.empty() ? std::vector<ElementRange>{{0, out}} : form.part.rows;
  std::int64_t outputs = 0;
  for (const auto& range : part) outputs += range.count;
  auto here = rows_here(part, rows, out);
  rows_.push_back(std::move(here.blocks));
  const auto before = form.part.name.empty() ? std::string() : form.part.name + ".";
  const auto role = w.role == ParameterRole::output_layer ? ParameterRole::matrix : w.role;
  auto& a = declare(before + "lora_A.weight", role, {form.rank, in_}, form.a_init, columns);
  auto& b = declare(before + "lora_B.weight", w.role, {outputs, form.rank}, form.b_init, here.cut);
  const auto sharers = w.role == ParameterRole::expert ? GradientSharers::expert_tensor : GradientSharers::tensor;
  if (!rows.strips.empty()) a.share(sharers);
  if (!columns.strips.empty()) b.share(sharers);
  share_copied_rows(b);
  sites_.push_back(name_id(a.name));
  factors_.push_back({&a.leaf, &b.leaf, form.scale, rows_.back()});
  if (form.magnitudes) add_magnitudes(before + "lora_magnitude.weight", outputs, here.cut, columns);
}

/// The gradient of magnitudes is the sum over the layer's inputs, of which a row-parallel layer has a part.
void Adapters::add_magnitudes(const std::string& name, std::int64_t outputs, const TensorCut& rows,
                              const TensorCut& columns) {
  auto& m = declare(name, ParameterRole::magnitude, {outputs}, Init::zeros(), rows);
  if (!columns.strips.empty()) m.share(GradientSharers::tensor);
  share_copied_rows(m);
  const auto& blocks = rows_.back();
  m.derive = [this, &blocks](kernels::Threads& threads, const parallel::ProcessGroups* groups,
                             std::span<float> values) {
    Arena arena;
    autograd::Tape tape(arena, threads, false);
    const auto norms = norms_.norms(tape, factors_, groups);
    const auto floats = autograd::Tape::floats(norms);
    for (const auto& block : blocks)
      std::copy_n(floats.begin() + block.in_layer, block.count, values.begin() + block.in_factor);
  };
  magnitudes_.push_back({&m.leaf, blocks});
}

bool Adapters::drops(const Pass& pass) const {
  return pass.training && std::any_of(forms_.begin(), forms_.end(), [](const auto& form) { return form.dropout > 0; });
}

kernels::DropoutMask Adapters::mask_of(std::size_t adapter, const Pass& pass, const HeldTokens& tokens) const {
  auto mask = tokens.rows(pass.dropout(Purpose::adapter_dropout, sites_[adapter], forms_[adapter].dropout), in_);
  if (in_here_ == in_) return mask;
  mask.first_element += first_column_;
  mask.gap_at = tokens.before_gap * in_here_;
  mask.row = in_here_;
  mask.row_stride = in_;
  return mask;
}

autograd::Var Adapters::add_to(autograd::Var y, const autograd::Var& x, const Pass& pass,
                               const HeldTokens& tokens) const {
  std::array<kernels::DropoutMask, autograd::most_adapters> masks;
  for (std::size_t i = 0; i < forms_.size(); ++i) masks[i] = mask_of(i, pass, tokens);
  return autograd::add_low_rank(std::move(y), x, factors_, std::span(masks).first(drops(pass) ? forms_.size() : 0));
}

autograd::LogitAdapter Adapters::of_logits(const autograd::Var& h, const Pass& pass) const {
  must(factors_.size() == 1, "the output layer has one adapter");
  const auto mask = mask_of(0, pass, pass.gathered);
  autograd::LogitAdapter made{.b = factors_[0].b};
  auto x = h;
  if (mask.rate > 0) {
    auto parts = autograd::split_by_dropout(h, mask);
    x = std::move(parts.first);
    if (!magnitudes_.empty()) made.rest = std::move(parts.second);
  }
  made.u = autograd::scaled(autograd::linear(x, *factors_[0].a, nullptr), factors_[0].scale);
  if (magnitudes_.empty()) return made;
  const auto kept = h.tape().keep_array<float>(static_cast<std::size_t>(magnitudes_[0].m->value.elements()));
  const auto norms = norms_.norms(h.tape(), factors_, pass.groups);
  kernels::copy(h.tape().threads(), autograd::Tape::floats(norms).first(kept.size()), kept);
  made.m = magnitudes_[0].m;
  made.norms = kept;
  return made;
}

autograd::ExpertAdapters Adapters::of_expert(autograd::Tape& tape, const Pass& pass) const {
  if (!drops(pass)) return {factors_, {}};
  const auto masks = tape.keep_array<kernels::DropoutMask>(forms_.size());
  for (std::size_t i = 0; i < forms_.size(); ++i) {
    masks[i] = pass.dropout(Purpose::adapter_dropout, sites_[i], forms_[i].dropout);
    masks[i].first_element = first_column_;
    masks[i].row = in_here_;
    masks[i].row_stride = in_;
  }
  return {factors_, masks};
}

autograd::Var Adapters::scaled_sum(const autograd::Var& x, autograd::Leaf& w, autograd::Leaf* bias,
                                   const Pass& pass) const {
  auto norms = norms_.norms(x.tape(), factors_, pass.groups);
  auto sum = autograd::add_low_rank(autograd::linear(x, w, nullptr), x, factors_, {});
  return autograd::scale_by_magnitudes(std::move(sum), magnitudes_, std::move(norms), bias);
}

autograd::Var Adapters::forward(const autograd::Var& x, autograd::Leaf& w, autograd::Leaf* bias,
                                const Pass& pass) const {
  if (magnitudes_.empty()) return add_to(autograd::linear(x, w, bias), x, pass, pass.gathered);
  auto mask = mask_of(0, pass, pass.gathered);
  if (mask.rate == 0) return scaled_sum(x, w, bias, pass);
  const auto parts = autograd::split_by_dropout(x, mask);
  auto y = scaled_sum(parts.first, w, nullptr, pass);
  mask.rate = 0;
  return autograd::dropout_add(std::move(y), autograd::linear(parts.second, w, bias), mask);
}

void Adapters::merge_into(autograd::Tape& tape, std::span<float> w) const {
  const auto out = static_cast<std::int64_t>(w.size()) / in_;
  for (const auto& one : factors_) {
    const auto rank = one.a->value.shape()[0];
    const auto size = static_cast<std::size_t>(out * rank);
    const auto memory = tape.scratch(size);
    const auto wide = autograd::Tape::floats(memory).first(size);
    kernels::fill(tape.threads(), 0, wide);
    kernels::place_factor(tape.threads(), {one.rows, rank, 0, rank}, static_cast<float>(one.scale),
                          tape.read(one.b->value), wide);
    kernels::linear_backward_input(tape.threads(), {out, in_, rank}, wide, one.a->value, w, true);
  }
  if (!magnitudes_.empty()) scale_rows_of(tape, w);
}

/// w[row] *= m / (the norm of row `row` of w), for the rows of adapters.
void Adapters::scale_rows_of(autograd::Tape& tape, std::span<float> w) const {
  const auto rows = w.size() / static_cast<std::size_t>(in_);
  std::vector<double> squares(rows);
  std::vector<float> norms(rows), factors(rows, 1);
  kernels::row_squares(tape.threads(), w, in_, squares);
  std::ranges::transform(squares, norms.begin(), [](double square) { return static_cast<float>(std::sqrt(square)); });
  for (const auto& one : magnitudes_)
    kernels::magnitude_factors(tape.threads(), one.rows, one.m->value.floats(), norms, factors);
  kernels::scale_rows(tape.threads(), in_, factors, w);
}

std::unique_ptr<Adapters> make_adapters(const std::string& layer, const std::vector<AdapterForm>& forms,
                                        const Parameter& w, const TensorCut& rows, const TensorCut& columns,
                                        SumOverRanks add_up) {
  return forms.empty() ? nullptr : std::make_unique<Adapters>(layer, forms, w, rows, columns, std::move(add_up));
}

}  // namespace tessera::nn
