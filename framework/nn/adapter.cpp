#include "framework/nn/adapter.h"

#include <algorithm>
#include <array>

#include "framework/kernels/linear.h"
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

Adapters::Adapters(const std::string& layer, std::vector<AdapterForm> forms, std::int64_t in, std::int64_t out,
                   const TensorCut& rows, const TensorCut& columns, ParameterRole role)
    : Module(layer),
      forms_(std::move(forms)),
      in_(in),
      in_here_(columns.strips.empty() ? in : columns.extent()),
      first_column_(columns.strips.empty() ? 0 : columns.strips[0].first) {
  must(forms_.size() <= autograd::most_adapters, "a layer has at most three adapters");
  rows_.reserve(forms_.size());  // the factors refer to its elements
  for (const auto& form : forms_) add(form, rows, columns, out, role);
}

void Adapters::add(const AdapterForm& form, const TensorCut& rows, const TensorCut& columns, std::int64_t out,
                   ParameterRole role) {
  const auto part = form.part.name.empty() ? std::vector<ElementRange>{{0, out}} : form.part.rows;
  std::int64_t outputs = 0;
  for (const auto& range : part) outputs += range.count;
  auto here = rows_here(part, rows, out);
  rows_.push_back(std::move(here.blocks));
  const auto before = form.part.name.empty() ? std::string() : form.part.name + ".";
  auto& a = declare(before + "lora_A.weight", role, {form.rank, in_}, form.a_init, columns);
  auto& b = declare(before + "lora_B.weight", role, {outputs, form.rank}, form.b_init, std::move(here.cut));
  const auto sharers = role == ParameterRole::expert ? GradientSharers::expert_tensor : GradientSharers::tensor;
  if (!rows.strips.empty()) a.share(sharers);
  if (!columns.strips.empty()) b.share(sharers);
  share_copied_rows(b);
  sites_.push_back(name_id(a.name));
  factors_.push_back({&a.leaf, &b.leaf, form.scale, rows_.back()});
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

autograd::Var Adapters::add_to(autograd::Var y, const autograd::Var& x, const Pass& pass) const {
  return add_to(std::move(y), x, pass, pass.gathered);
}

autograd::Var Adapters::add_to(autograd::Var y, const autograd::Var& x, const Pass& pass,
                               const HeldTokens& tokens) const {
  std::array<kernels::DropoutMask, autograd::most_adapters> masks;
  for (std::size_t i = 0; i < forms_.size(); ++i) masks[i] = mask_of(i, pass, tokens);
  return autograd::add_low_rank(std::move(y), x, factors_, std::span(masks).first(drops(pass) ? forms_.size() : 0));
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
}

std::unique_ptr<Adapters> make_adapters(const std::string& layer, const std::vector<AdapterForm>& forms,
                                        std::int64_t in, std::int64_t out, const TensorCut& rows,
                                        const TensorCut& columns, ParameterRole role) {
  return forms.empty() ? nullptr : std::make_unique<Adapters>(layer, forms, in, out, rows, columns, role);
}

}  // namespace tessera::nn
