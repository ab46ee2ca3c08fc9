#include "framework/interop/hugging_face/weight_table.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "framework/base/error.h"

namespace tessera::hugging_face {
namespace {

const std::string layer_mark = "{layer}", expert_mark = "{expert}";

std::string numbered(std::string name, const std::string& mark, std::int64_t number) {
  if (const auto at = name.find(mark); at != std::string::npos) name.replace(at, mark.size(), std::to_string(number));
  return name;
}

bool matches(const std::string& name, const std::string& pattern) {
  const auto mark = pattern.find(layer_mark);
  if (mark == std::string::npos) return name == pattern;
  if (name.compare(0, mark, pattern, 0, mark) != 0) return false;
  auto at = mark;
  while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0) ++at;
  return at > mark && name.substr(at) == pattern.substr(mark + layer_mark.size());
}

std::vector<std::string> scalars(const options::Value& value) {
  if (value.kind == options::Value::Kind::scalar) return {value.scalar};
  std::vector<std::string> out;
  for (const auto& item : value.items) out.push_back(item.scalar);
  return out;
}

WeightStep step_named(const std::string& name, const options::Origin& at) {
  if (name == "transpose") return WeightStep::transpose;
  if (name == "group_qkv") return WeightStep::group_qkv;
  if (name == "flatten") return WeightStep::flatten;
  if (name == "expert") return WeightStep::expert;
  if (name == "interleaved") return WeightStep::interleaved;
  throw ConfigError(text(at, ": no step '", name, "'; have transpose, group_qkv, expert, interleaved, flatten"));
}

/// Whether the row of a table is for layers with experts ("experts"), for the others ("dense") or for all of them.
std::optional<bool> kind_named(const options::Value& kind) {
  if (kind.scalar != "experts" && kind.scalar != "dense")
    throw ConfigError(text(kind.origin, ": no layers '", kind.scalar, "'; have experts, dense"));
  return kind.scalar == "experts";
}

bool has(const WeightRow& row, WeightStep step) { return std::ranges::find(row.steps, step) != row.steps.end(); }

WeightRow row_of(const options::Value::Field& field, const std::function<double(const std::string& key)>& number) {
  WeightRow row{field.name, {}, {}};
  const options::Value* sources = nullptr;
  for (const auto& [key, value] : field.value.fields) {
    if (key == "from")
      row.from = scalars(value);
    else if (key == "from_when")
      sources = &value;
    else if (key == "steps")
      for (const auto& step : scalars(value)) row.steps.push_back(step_named(step, value.origin));
    else if (key == "layers")
      row.of_experts = kind_named(value);
    else if (key == "always_float32")
      row.always_float32 = value.scalar == "true";
    else if (key == "row_shape")
      for (const auto& extent : scalars(value)) row.row_shape.push_back(static_cast<std::int64_t>(number(extent)));
    else if (key != "when" && key != "unless")
      throw ConfigError(
          text(value.origin, ": no '", key,
               "' in a row of weights; have from, from_when, steps, row_shape, layers, always_float32, when, unless"));
  }
  if (sources != nullptr)
    if (const auto chosen = std::find_if(sources->fields.begin(), sources->fields.end(),
                                         [&](const auto& one) { return number(one.name) != 0; });
        chosen != sources->fields.end())
      row.from = scalars(chosen->value);
  if (has(row, WeightStep::flatten) == row.row_shape.empty())
    throw ConfigError(text(field.value.origin, ": '", field.name, "' has one of the step flatten and 'row_shape'"));
  if (row.from.empty()) throw ConfigError(text(field.value.origin, ": '", field.name, "' has no 'from'"));
  return row;
}

WeightRow numbered(WeightRow row, const std::string& mark, std::int64_t ours, std::int64_t theirs) {
  row.name = numbered(std::move(row.name), mark, ours);
  for (auto& name : row.from) name = numbered(std::move(name), mark, theirs);
  return row;
}

bool is_marked(const WeightRow& row, const std::string& mark) { return row.name.find(mark) != std::string::npos; }

std::string names_of(const std::vector<parallel::Tower>& towers) {
  std::string all;
  for (const auto& tower : towers) all += (all.empty() ? "" : ", ") + tower.name;
  return all;
}

/// Whether the row is for the layers of `tower`.
bool is_of(const WeightRow& row, const parallel::Tower& tower) {
  return row.name.rfind(tower.name + ".layers." + layer_mark, 0) == 0;
}

bool is_in(const WeightRow& row, const model::WeightLayout& model, std::int64_t layer) {
  if (!row.of_experts) return true;
  const auto last = std::min(layer, model.towers.layers() - 1);
  return *row.of_experts == (model.experts > 0 && (!model.has_experts || model.has_experts(last)));
}

using Bytes = std::vector<std::byte>;

Bytes transposed(const Bytes& from, std::size_t size, std::int64_t rows, std::int64_t width) {
  Bytes out(from.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      std::memcpy(out.data() + static_cast<std::size_t>(c * rows + r) * size,
                  from.data() + static_cast<std::size_t>(r * width + c) * size, size);
  return out;
}

/// Where row `row` of the grouped layout stands among [all queries; all keys; all values].
std::int64_t ungrouped_row(std::int64_t row, const model::HeadLayout& h) {
  const auto queries = h.heads / h.groups;
  const auto channel = row % h.channels, head = row / h.channels;
  const auto group = head / (queries + 2), place = head % (queries + 2);
  if (place < queries) return (group * queries + place) * h.channels + channel;
  const auto kind = place - queries;  // 0: key, 1: value
  return (h.heads + kind * h.groups + group) * h.channels + channel;
}

/// The inverse of ungrouped_row.
std::int64_t grouped_row(std::int64_t row, const model::HeadLayout& h) {
  const auto queries = h.heads / h.groups;
  const auto channel = row % h.channels, head = row / h.channels;
  if (head < h.heads) return (head / queries * (queries + 2) + head % queries) * h.channels + channel;
  const auto kind = (head - h.heads) / h.groups, group = (head - h.heads) % h.groups;
  return (group * (queries + 2) + queries + kind) * h.channels + channel;
}

Bytes regrouped(const Bytes& from, const model::HeadLayout& heads, bool to_grouped) {
  Bytes out(from.size());
  const auto width = from.size() / static_cast<std::size_t>(heads.rows());
  for (std::int64_t row = 0; row < heads.rows(); ++row) {
    const auto grouped = static_cast<std::size_t>(row) * width,
               apart = static_cast<std::size_t>(ungrouped_row(row, heads)) * width;
    std::memcpy(out.data() + (to_grouped ? grouped : apart), from.data() + (to_grouped ? apart : grouped), width);
  }
  return out;
}

/// Rows [gate 0, up 0, gate 1, ...] to [gate; up], or back.
Bytes deinterleaved(const Bytes& from, std::size_t rows, bool to_ours) {
  Bytes out(from.size());
  const auto width = rows == 0 ? 0 : from.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto apart = row % 2 * (rows / 2) + row / 2;
    std::memcpy(out.data() + (to_ours ? apart : row) * width, from.data() + (to_ours ? row : apart) * width, width);
  }
  return out;
}

Shape joined(const WeightRow& row, const std::vector<Shape>& parts) {
  must(parts.size() == row.from.size() && !parts.empty(), "each part of a weight has a shape");
  std::vector<std::int64_t> dims(parts[0].dims().begin(), parts[0].dims().end());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto next = parts[i].dims();
    if (dims.empty() || next.empty() || !std::equal(dims.begin() + 1, dims.end(), next.begin() + 1, next.end()))
      throw ShapeError(
          text(row.name, ": ", row.from[i], " of ", parts[i], " does not fit below ", row.from[0], " of ", parts[0]));
    dims[0] += next[0];
  }
  return Shape(dims);
}

Shape after(const WeightRow& row, WeightStep step, const Shape& shape) {
  const auto& heads = row.heads;
  if (step == WeightStep::interleaved) {
    if (shape.rank() == 0 || shape[0] % 2 != 0)
      throw ShapeError(text(row.name, " has shape ", shape, "; expected an even number of rows, of gate and up"));
    return shape;
  }
  if (step == WeightStep::transpose) {
    if (shape.rank() != 2) throw ShapeError(text(row.name, ": ", shape, " cannot be transposed"));
    return Shape{shape[1], shape[0]};
  }
  if (step == WeightStep::flatten) {
    const auto dims = shape.dims();
    if (dims.empty() || !std::equal(dims.begin() + 1, dims.end(), row.row_shape.begin(), row.row_shape.end()))
      throw ShapeError(
          text(row.name, " has shape ", shape, " in the file; rows of ", Shape(row.row_shape), " were expected"));
    return Shape{shape[0], Shape(row.row_shape).elements()};
  }
  if (shape.rank() == 0 || shape[0] != heads.rows())
    throw ShapeError(text(row.name, " has shape ", shape, "; expected ", heads.rows(), " rows: ", heads.heads,
                          " query heads and ", heads.groups, " key/value heads of dimension ", heads.channels));
  return shape;
}

/// The shape before `step`, of the shape after it.
Shape before(const WeightRow& row, WeightStep step, const Shape& shape) {
  if (step != WeightStep::flatten) return after(row, step, shape);  // it keeps or swaps extents
  if (shape.rank() != 2 || shape[1] != Shape(row.row_shape).elements())
    throw ShapeError(
        text(row.name, " has shape ", shape, "; rows of ", Shape(row.row_shape).elements(), " elements were expected"));
  std::vector<std::int64_t> dims = {shape[0]};
  dims.insert(dims.end(), row.row_shape.begin(), row.row_shape.end());
  return Shape(dims);
}

Bytes moved(const WeightRow& row, WeightStep step, Bytes elements, std::size_t size, const Shape& from, bool to_ours) {
  if (step == WeightStep::flatten) return elements;
  if (step == WeightStep::interleaved) return deinterleaved(elements, static_cast<std::size_t>(from[0]), to_ours);
  return step == WeightStep::transpose ? transposed(elements, size, from[0], from[1])
                                       : regrouped(elements, row.heads, to_ours);
}

}  // namespace

WeightTable::WeightTable(const options::Value& table, const model::WeightLayout& model,
                         const std::function<double(const std::string& key)>& value) {
  must(model.heads.size() == model.towers.all().size(), "every tower has a HeadLayout");
  for (const auto& heads : model.heads)
    must(heads.groups >= 1 && heads.channels >= 1 && heads.heads % heads.groups == 0,
         "HeadLayout has a whole number of query heads for each key/value head");
  if (const auto* spellings = table.find("spellings"))
    for (const auto& [ours, theirs] : spellings->fields) spellings_.emplace_back(ours, theirs.scalar);
  if (const auto* ignored = table.find("ignored")) ignored_ = scalars(*ignored);
  if (const auto* copies = table.find("copies"))
    for (const auto& [copy, of] : copies->fields) copies_.push_back({copy, of.scalar});
  modules_are_spelled_ = table.find("modules_are_spelled") != nullptr;
  if (const auto* modules = table.find("modules"))
    for (const auto& [file, module] : modules->fields) renamed_modules_.emplace_back(file, module.scalar);
  const auto* tensors = table.find("tensors");
  if (tensors == nullptr) throw ConfigError(text(table.origin, ": has no 'tensors'"));
  add_tensors(*tensors, model, value);
  if (const auto* prediction = table.find("prediction")) add_predictions(*prediction, model);
  for (const auto& copy : copies_) ignored_.push_back(copy.name);
}

void WeightTable::add_tensors(const options::Value& tensors, const model::WeightLayout& model,
                              const std::function<double(const std::string& key)>& value) {
  std::vector<WeightRow> of_expert;
  std::size_t done = 0;  // rows of layers that are in rows_
  const auto add_experts = [&] {
    for (std::int64_t expert = 0; expert < model.experts && !of_expert.empty(); ++expert)
      for (const auto& row : of_expert) {
        layer_rows_.push_back(numbered(row, expert_mark, expert, expert));
        if (std::erase(layer_rows_.back().steps, WeightStep::expert) > 0) layer_rows_.back().expert = expert;
        layer_rows_.back().of_experts = true;
      }
    of_expert.clear();
  };
  const auto add_layers = [&] {
    add_experts();
    std::int64_t before = 0;  // layers of earlier towers
    for (std::size_t i = 0; i < model.towers.all().size(); ++i) {
      const auto& tower = model.towers.all()[i];
      for (auto row = done; row < layer_rows_.size(); ++row)
        if (is_of(layer_rows_[row], tower)) layer_rows_[row].heads = model.heads[i];
      for (std::int64_t layer = 0; layer < tower.layers && done < layer_rows_.size(); ++layer)
        for (auto row = done; row < layer_rows_.size(); ++row)
          if (is_of(layer_rows_[row], tower) && is_in(layer_rows_[row], model, before + layer))
            rows_.push_back(numbered(layer_rows_[row], layer_mark, layer, layer));
      before += tower.layers;
    }
    done = layer_rows_.size();
  };
  const auto& towers = model.towers.all();
  for (const auto& field : tensors.fields) {
    auto row = row_of(field, value);
    if (is_marked(row, layer_mark) &&
        std::none_of(towers.begin(), towers.end(), [&](const auto& tower) { return is_of(row, tower); }))
      throw ConfigError(text(field.value.origin, ": '", row.name, "' is for the layers of no tower of the model; have ",
                             names_of(towers)));
    if (const auto* when = field.value.find("when"); when != nullptr && value(when->scalar) == 0) continue;
    if (const auto* unless = field.value.find("unless"); unless != nullptr && value(unless->scalar) != 0) continue;
    if (is_marked(row, expert_mark)) {
      of_expert.push_back(std::move(row));
      continue;
    }
    add_experts();
    if (is_marked(row, layer_mark)) {
      layer_rows_.push_back(std::move(row));
      continue;
    }
    add_layers();
    rows_.push_back(std::move(row));
  }
  add_layers();
}

/// Our layers of multi-token prediction are numbered from 0 and have a layer as the decoder's in them; theirs follow
/// the decoder's with the same names inside.
void WeightTable::add_predictions(const options::Value& prediction, const model::WeightLayout& model) {
  const std::string decoder = "decoder.layers." + layer_mark + ".";
  const auto *layer = prediction.find("layer"), *tensors = prediction.find("tensors");
  if (layer == nullptr || tensors == nullptr)
    throw ConfigError(text(prediction.origin, ": 'prediction' has 'layer' and 'tensors'"));
  for (std::int64_t k = 0; k < model.predictions; ++k) {
    const auto theirs = model.towers.layers() + k;
    for (const auto& field : tensors->fields)
      rows_.push_back(numbered(row_of(field, [](const auto&) { return 0.; }), layer_mark, k, theirs));
    for (auto row : layer_rows_) {
      if (!is_in(row, model, theirs) || row.name.rfind(decoder, 0) != 0) continue;
      row.name = layer->scalar + row.name.substr(decoder.size());
      rows_.push_back(numbered(std::move(row), layer_mark, k, theirs));
    }
    if (const auto* copies = prediction.find("copies"))
      for (const auto& [copy, of] : copies->fields)
        copies_.push_back({numbered(copy, layer_mark, theirs), of.scalar, true});
  }
}

void WeightTable::take_transposed(const std::function<bool(const std::string& tensor)>& holds) {
  for (auto& row : rows_)
    if (std::ranges::any_of(row.from, holds)) std::erase(row.steps, WeightStep::transpose);
}

std::vector<std::string> WeightTable::names_in_files(const std::string& name) const {
  std::vector<std::string> names = {name};
  for (const auto& [ours, theirs] : spellings_)
    if (name.starts_with(ours)) names.push_back(theirs + name.substr(ours.size()));
  return names;
}

std::string WeightTable::as_module(const std::string& name) const {
  const auto begins_with = [&](const auto& spelling) { return name.starts_with(spelling.second); };
  if (!modules_are_spelled_ || std::ranges::any_of(spellings_, begins_with)) return name;
  return names_in_files(name).back();
}

std::vector<std::string> WeightTable::names_in_table(const std::string& name) const {
  std::vector<std::string> names = {name};
  for (const auto& [ours, theirs] : spellings_)
    if (name.starts_with(theirs)) names.push_back(ours + name.substr(theirs.size()));
  return names;
}

bool WeightTable::ignores(const std::string& name) const {
  const auto names = names_in_table(name);
  return std::any_of(ignored_.begin(), ignored_.end(), [&](const auto& pattern) {
    return std::any_of(names.begin(), names.end(), [&](const auto& one) { return matches(one, pattern); });
  });
}

Shape shape_of(const WeightRow& row, const std::vector<Shape>& parts) {
  auto shape = joined(row, parts);
  for (const auto step : row.steps) shape = after(row, step, shape);
  return shape;
}

std::vector<Shape> part_shapes_of(const WeightRow& row, const Shape& ours) {
  const auto& heads = row.heads;
  auto shape = ours;
  for (auto step = row.steps.rbegin(); step != row.steps.rend(); ++step) shape = before(row, *step, shape);
  const auto count = static_cast<std::int64_t>(row.from.size());
  if (count == 1) return {shape};
  const bool fused = count == 3 && !row.steps.empty() && row.steps.back() == WeightStep::group_qkv;
  if (shape.rank() == 0 || (!fused && shape[0] % count != 0))
    throw ShapeError(text(row.name, ": ", ours, " cannot be cut into ", count, " parts"));
  std::vector<Shape> parts;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
    dims[0] = fused ? (i == 0 ? heads.heads : heads.groups) * heads.channels : shape[0] / count;
    parts.emplace_back(dims);
  }
  return parts;
}

std::optional<std::vector<RowsOfPart>> rows_in_parts(const WeightRow& row, const std::vector<Shape>& parts,
                                                     std::int64_t first, std::int64_t count) {
  if (has(row, WeightStep::transpose) || has(row, WeightStep::interleaved) || row.expert) return std::nullopt;
  const bool grouped = has(row, WeightStep::group_qkv);
  std::vector<RowsOfPart> all;
  for (auto ours = first; ours < first + count; ++ours) {
    auto theirs = grouped ? ungrouped_row(ours, row.heads) : ours;
    std::size_t part = 0;
    while (theirs >= parts[part][0]) theirs -= parts[part++][0];
    if (!all.empty() && all.back().part == part && all.back().row + all.back().rows == theirs)
      ++all.back().rows;
    else
      all.push_back({part, theirs, 1});
  }
  return all;
}

bool makes_rows(const WeightRow& row) {
  const auto transposes = std::ranges::count(row.steps, WeightStep::transpose);
  return transposes == 0 || (transposes == 1 && row.steps.front() == WeightStep::transpose);
}

std::int64_t our_row_of(const WeightRow& row, std::int64_t rows, std::int64_t theirs) {
  for (const auto step : row.steps) {
    if (step == WeightStep::group_qkv) theirs = grouped_row(theirs, row.heads);
    if (step == WeightStep::interleaved) theirs = theirs % 2 * (rows / 2) + theirs / 2;
  }
  return theirs;
}

std::int64_t their_row_of(const WeightRow& row, std::int64_t rows, std::int64_t ours) {
  for (auto step = row.steps.rbegin(); step != row.steps.rend(); ++step) {
    if (*step == WeightStep::group_qkv) ours = ungrouped_row(ours, row.heads);
    if (*step == WeightStep::interleaved) ours = ours < rows / 2 ? 2 * ours : 2 * (ours - rows / 2) + 1;
  }
  return ours;
}

Bytes to_ours(const WeightRow& row, Bytes elements, std::size_t size, const std::vector<Shape>& parts) {
  auto shape = joined(row, parts);
  for (const auto step : row.steps) {
    const auto next = after(row, step, shape);
    elements = moved(row, step, std::move(elements), size, shape, true);
    shape = next;
  }
  return elements;
}

Bytes to_theirs(const WeightRow& row, Bytes elements, std::size_t size, const std::vector<Shape>& parts) {
  auto shape = shape_of(row, parts);
  for (auto step = row.steps.rbegin(); step != row.steps.rend(); ++step) {
    const auto next = before(row, *step, shape);
    elements = moved(row, *step, std::move(elements), size, shape, false);
    shape = next;
  }
  return elements;
}

}  // namespace tessera::hugging_face
