// Weights in NF4 as bitsandbytes names their parts.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/interop/hugging_face/packed_weights.h"
#include "framework/kernels/nf4.h"

namespace tessera::hugging_face {
namespace {

/// The parts of one weight in the files.
class Nf4Files {
 public:
  Nf4Files(const checkpoint::SafetensorsReader& files, const std::string& name) : files_(files), name_(name) {}

  PackedWeight open() {
    const auto state = state_of();
    PackedWeight out{.shape = shape_of(state),
                     .type = dtype_named(state.value("dtype", Json("")).string()),
                     .array = nullptr,
                     .files = {},
                     .tensors = {}};
    expect_values(".quant_map", kernels::nf4_values());
    kernels::Nf4Parts parts{.size = out.shape.elements(),
                            .codes = bytes(""),
                            .maxima = {},
                            .nested_codes = {},
                            .offset = 0,
                            .type = out.type};
    if (number(state, "blocksize") != kernels::nf4_block)
      refuse(text("has blocks of ", number(state, "blocksize"), " elements; blocks of ", kernels::nf4_block,
                  " are supported"));
    if (state.contains("nested_offset")) {
      if (number(state, "nested_blocksize") != kernels::nf4_nested_block)
        refuse(text("has nested blocks of ", number(state, "nested_blocksize"), "; ", kernels::nf4_nested_block,
                    " are supported"));
      expect_values(".nested_quant_map", kernels::dynamic_values());
      parts.nested_codes = bytes(".absmax");
      parts.maxima = floats(".nested_absmax");
      parts.offset = static_cast<float>(state["nested_offset"].get<double>());
    } else {
      parts.maxima = floats(".absmax");
    }
    try {
      out.array = kernels::nf4_array(parts);
    } catch (const ConfigError& error) {
      refuse(error.what());
    }
    out.files = std::move(kept_);
    out.tensors = std::move(tensors_);
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(text("tensor '", name_, "' in NF4: ", what));
  }

  std::int64_t number(const Json& state, const char* key) const {
    const auto value = state.value(key, Json());
    if (!value.is_number_integer()) refuse(text("its state has no number '", key, "'"));
    return value.get<std::int64_t>();
  }

  Json state_of() {
    const auto all = bytes(nf4_ending);
    const auto state = parse_json(std::string(reinterpret_cast<const char*>(all.data()), all.size()));
    if (!state.is_object()) refuse("its state is no JSON object");
    return state;
  }

  Shape shape_of(const Json& state) const {
    const auto extents = state.value("shape", Json());
    if (!extents.is_array() || extents.size() != 2) refuse("its state has no shape [out, in]");
    std::vector<std::int64_t> dims;
    for (const auto& one : extents) dims.push_back(one.is_number_integer() ? one.get<std::int64_t>() : -1);
    if (dims[0] < 1 || dims[1] < 1) refuse("its state has no shape [out, in]");
    return Shape(dims);
  }

  /// The tensor name + ending, which must be of `type`.
  Tensor part(const char* ending, DType type) {
    const auto tensor = name_ + ending;
    if (!files_.has(tensor)) refuse(text("the files have no '", tensor, "'"));
    auto mapped = files_.mapped(tensor);
    if (mapped.tensor.dtype() != type)
      refuse(text("'", tensor, "' is ", name_of(mapped.tensor.dtype()), "; expected ", name_of(type)));
    if (std::ranges::find(kept_, mapped.file) == kept_.end()) kept_.push_back(mapped.file);
    tensors_.insert(tensor);
    return mapped.tensor;
  }
  std::span<const std::uint8_t> bytes(const char* ending) {
    return part(ending, DType::uint8).as<const std::uint8_t>();
  }
  std::span<const float> floats(const char* ending) {
    const auto all = part(ending, DType::float32);
    if (reinterpret_cast<std::uintptr_t>(all.raw().data()) % sizeof(float) != 0)
      refuse(text("'", name_, ending, "' is not aligned in its file"));
    return all.as<const float>();
  }

  /// bitsandbytes could have other values for the codes.
  void expect_values(const char* ending, std::span<const float> values) {
    const auto there = part(ending, DType::float32).raw();
    if (there.size() != values.size_bytes() || std::memcmp(there.data(), values.data(), there.size()) != 0)
      refuse(text("'", name_, ending, "' has other values than bitsandbytes gives its codes"));
  }

  const checkpoint::SafetensorsReader& files_;
  std::string name_;
  std::vector<std::shared_ptr<const MappedFile>> kept_;
  std::set<std::string> tensors_;
};

template <class T>
OwnTensor own(std::span<const T> values, DType type) {
  const auto bytes = std::as_bytes(values);
  return {{bytes.begin(), bytes.end()}, type, {static_cast<std::int64_t>(values.size())}};
}

OwnTensor state_tensor(const Json& state) {
  const auto words = state.dump();
  return own(std::span(words.data(), words.size()), DType::uint8);
}

}  // namespace

PackedTensors pack_nf4(std::span<const float> values, const Shape& shape, DType type, bool nested) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(kernels::nf4_bytes(shape.elements())));
  std::vector<float> maxima(static_cast<std::size_t>(kernels::nf4_blocks(shape.elements())));
  kernels::nf4_quantise(values, codes, maxima);
  Json state = {{"quant_type", "nf4"}, {"blocksize", kernels::nf4_block}, {"dtype", name_of(type)}};
  state["shape"] = Json::array({shape[0], shape[1]});
  PackedTensors all;
  all[""] = own(std::span<const std::uint8_t>(codes), DType::uint8);
  all[""].shape = {all[""].shape[0], 1};
  all[".quant_map"] = own(std::span<const float>(kernels::nf4_values()), DType::float32);
  if (nested) {
    const auto inner = kernels::nf4_nest(maxima);
    all[".absmax"] = own(std::span<const std::uint8_t>(inner.codes), DType::uint8);
    all[".nested_absmax"] = own(std::span<const float>(inner.maxima), DType::float32);
    all[".nested_quant_map"] = own(std::span<const float>(kernels::dynamic_values()), DType::float32);
    state["nested_blocksize"] = kernels::nf4_nested_block;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(inner.offset);
  } else {
    all[".absmax"] = own(std::span<const float>(maxima), DType::float32);
  }
  all[nf4_ending] = state_tensor(state);
  return all;
}

PackedWeight open_nf4(const checkpoint::SafetensorsReader& files, const std::string& name) {
  return Nf4Files(files, name).open();
}

}  // namespace tessera::hugging_face
