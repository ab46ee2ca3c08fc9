#include "tests/golden/nf4_blocks.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/kernels/nf4.h"
#include "framework/kernels/type_conversion.h"
#include "tests/golden/comparison.h"

namespace tessera {
namespace golden {
namespace {

namespace fs = std::filesystem;

/// The recorded tensors of one input, and what is computed from it.
class Nf4Input {
 public:
  Nf4Input(const checkpoint::SafetensorsReader& files, std::string name) : files_(files), name_(std::move(name)) {}

  void judge(Comparison& comparison) const {
    const auto input = files_.tensor(name_ + ".input");
    const auto x = floats(".input");
    const auto size = input.elements();
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(kernels::nf4_bytes(size)));
    std::vector<float> maxima(static_cast<std::size_t>(kernels::nf4_blocks(size)));
    kernels::nf4_quantise(x, codes, maxima);
    expect(".packed", codes, comparison);
    expect(".absmax", maxima, comparison);
    expect_values(
        ".dequantised",
        {.size = size, .codes = codes, .maxima = maxima, .nested_codes = {}, .offset = 0, .type = input.dtype()},
        comparison);
    const auto nested = kernels::nf4_nest(maxima);
    expect(".double.absmax", nested.codes, comparison);
    expect(".double.nested_absmax", nested.maxima, comparison);
    expect(".double.offset", std::vector<float>{nested.offset}, comparison);
    expect_values(".double.dequantised",
                  {.size = size,
                   .codes = codes,
                   .maxima = nested.maxima,
                   .nested_codes = nested.codes,
                   .offset = nested.offset,
                   .type = input.dtype()},
                  comparison);
  }

 private:
  std::vector<float> floats(const std::string& ending) const {
    const auto tensor = files_.tensor(name_ + ending);
    std::vector<std::byte> aligned(tensor.raw().begin(), tensor.raw().end());
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    kernels::widen_range(kernels::Elements(aligned.data(), values.size(), tensor.dtype()), values);
    return values;
  }

  template <class T>
  void expect(const std::string& ending, const std::vector<T>& got, Comparison& comparison) const {
    std::vector<T> recorded(got.size());
    const auto raw = files_.tensor(name_ + ending).raw();
    if (raw.size() != got.size() * sizeof(T)) return comparison.wrong(text(name_, ending, " has another size"));
    std::memcpy(recorded.data(), raw.data(), raw.size());
    const std::vector<double> a(got.begin(), got.end()), b(recorded.begin(), recorded.end());
    comparison.compare(name_ + ending, a, b, 0);
  }

  void expect_values(const std::string& ending, const kernels::Nf4Parts& parts, Comparison& comparison) const {
    std::vector<float> values(static_cast<std::size_t>(parts.size));
    kernels::nf4_array(parts)->unpack(0, values);
    const auto recorded = floats(ending);
    comparison.compare(name_ + ending, std::vector<double>(values.begin(), values.end()),
                       std::vector<double>(recorded.begin(), recorded.end()), 0);
  }

  const checkpoint::SafetensorsReader& files_;
  std::string name_;
};

}  // namespace
}  // namespace golden

bool is_nf4_blocks(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "finetune.json") && std::filesystem::exists(folder / "tensors.safetensors") &&
         nlohmann::json::parse(read_file(folder / "finetune.json")).contains("nested_blocksize");
}

std::vector<CaseResult> run_nf4_blocks(const std::filesystem::path& folder) {
  const auto facts = nlohmann::json::parse(read_file(folder / "finetune.json"));
  const checkpoint::SafetensorsReader files(folder / "tensors.safetensors");
  golden::Comparison comparison;
  for (const auto& [name, about] : facts.at("inputs").items()) golden::Nf4Input(files, name).judge(comparison);
  return {{"", comparison.good() ? CaseResult::Verdict::passed : CaseResult::Verdict::failed,
           comparison.good() ? text(comparison.compared(), " arrays, equal to the bit") : comparison.summary()}};
}

}  // namespace tessera
