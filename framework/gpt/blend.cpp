#include "framework/gpt/blend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <sstream>

#include "framework/base/checked.h"
#include "framework/base/json.h"
#include "framework/files/input_file.h"

namespace tessera::gpt {
namespace {

constexpr std::size_t most_parts = 32766;
constexpr const char* white_space = " \t\n\r\v\f";

std::string stripped(const std::string& word) {
  const auto first = word.find_first_not_of(white_space);
  return first == std::string::npos ? "" : word.substr(first, word.find_last_not_of(white_space) - first + 1);
}

/// What Python's float() makes of a word: decimal numbers, also with single underscores between digits, inf and nan.
std::optional<double> python_float(const std::string& given) {
  const auto word = stripped(given);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string plain;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] == 'x' || word[i] == 'X' || word[i] == '(') return {};  // C's numbers, not Python's
    if (word[i] != '_') {
      plain += word[i];
    } else if (i == 0 || i + 1 == word.size() || !is_digit(word[i - 1]) || !is_digit(word[i + 1])) {
      return {};
    }
  }
  char* stop = nullptr;
  const double value = std::strtod(plain.c_str(), &stop);
  if (plain.empty() || stop != plain.c_str() + plain.size()) return {};
  return value;
}

/// NumPy's sum of float64 values (numpy/_core/src/umath/loops_utils.h.src): eight running sums, in halves above 128.
double pairwise_sum(std::span<const double> v) {
  constexpr std::size_t lanes = 8, block = 128;
  if (v.size() < lanes) return std::accumulate(v.begin(), v.end(), 0.0);
  if (v.size() > block) {
    const auto half = v.size() / 2 - v.size() / 2 % lanes;
    return pairwise_sum(v.first(half)) + pairwise_sum(v.subspan(half));
  }
  std::array<double, lanes> r{};
  std::copy_n(v.begin(), lanes, r.begin());
  std::size_t i = lanes;
  for (; i < v.size() - v.size() % lanes; i += lanes)
    for (std::size_t k = 0; k < lanes; ++k) r[k] += v[i + k];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < v.size(); ++i) sum += v[i];
  return sum;
}

Blend of_prefixes(const std::vector<std::string>& words) {
  Blend blend;
  for (const auto& word : words) blend.prefixes.push_back(stripped(word));
  return blend;
}

/// Words that are no blend: what read_blend throws and broken_blend returns.
struct BadBlend {
  std::string message, advice;
};

void check_weight(double weight, const std::string& word, const std::string& prefix) {
  if (weight > 0 && std::isfinite(weight)) return;
  throw BadBlend{text("the weight of '", prefix, "' is ", word, "; expected a number above 0"),
                 "leave the prefix out if nothing of it is to be read"};
}

/// Of one word or more.
Blend blend_of_words(const std::vector<std::string>& words) {
  Blend blend = of_prefixes(words);
  if (words.size() % 2 == 0) {
    std::vector<std::optional<double>> weights;
    for (std::size_t i = 0; i < words.size(); i += 2) weights.push_back(python_float(words[i]));
    const auto is_none = [](const auto& weight) { return !weight; };
    const auto first_none = std::find_if(weights.begin(), weights.end(), is_none);
    if (first_none == weights.end()) {
      blend = {{}, std::vector<double>()};
      for (std::size_t i = 0; i < words.size(); i += 2) {
        const auto prefix = stripped(words[i + 1]);
        check_weight(*weights[i / 2], words[i], prefix);
        blend.prefixes.push_back(prefix);
        blend.weights->push_back(*weights[i / 2]);
      }
    } else if (!std::all_of(first_none, weights.end(), is_none)) {
      // Megatron-LM looks only at what follows the first word that is not a number: the rest are prefixes there too.
      throw BadBlend{text("'", words[static_cast<std::size_t>(2 * (first_none - weights.begin()))],
                          "' stands where a weight is expected"),
                     "give a weight before each prefix, or before none"};
    }
  }
  if (blend.weights)
    for (const auto weight : normalized(*blend.weights))
      if (!(weight > 0)) throw BadBlend{"its weights are too far apart or too large to be compared", "change them"};
  if (blend.prefixes.size() > most_parts)
    throw BadBlend{text("has ", blend.prefixes.size(), " prefixes; at most ", most_parts, " can be blended"),
                   "merge some with `tessera data merge`"};
  return blend;
}

}  // namespace

std::optional<Blend> read_blend(const std::vector<std::string>& words, const std::string& option) {
  if (words.empty()) return {};
  try {
    return blend_of_words(words);
  } catch (const BadBlend& bad) {
    throw ConfigError(text(option, ": ", bad.message, "; ", bad.advice));
  }
}

std::optional<options::Finding> broken_blend(const std::vector<std::string>& words, const std::string& option) {
  if (words.empty()) return {};
  try {
    (void)blend_of_words(words);
    return {};
  } catch (const BadBlend& bad) {
    return options::Finding{.option = option, .message = text(option, ": ", bad.message), .advice = bad.advice};
  }
}

std::vector<std::string> words_of_file(const std::string& file, const std::string& option) {
  auto content = files::read_input(file, option);
  if (content.starts_with("\xEF\xBB\xBF")) content.erase(0, 3);  // a byte order mark
  std::istringstream all(std::move(content));
  std::vector<std::string> words;
  for (std::string word; all >> word;) words.push_back(word);
  if (words.empty()) throw ConfigError(text(file, ": is empty; expected the words of data_path"));
  return words;
}

std::vector<std::vector<std::string>> words_of_splits(const std::string& file, const std::string& option) {
  std::string why;
  const auto json = parse_json(files::read_input(file, option), &why);
  if (json.is_discarded())
    throw ConfigError(text(file, ": is not JSON: ", why, "; expected an object with the keys train, valid and test"));
  if (!json.is_object())
    throw ConfigError(text(file, ": is not a JSON object; expected the keys train, valid and test"));
  std::vector<std::vector<std::string>> all;
  for (const char* split : {"train", "valid", "test"}) {
    const auto found = json.find(split);
    if (found == nullptr)
      throw ConfigError(text(file, ": has no key '", split, "'; give train, valid and test, null for none"));
    auto& words = all.emplace_back();
    if (found->is_string()) {
      std::istringstream text_words(found->get<std::string>());
      for (std::string word; text_words >> word;) words.push_back(word);
    } else if (found->is_array()) {
      for (const auto& item : *found) {
        if (!item.is_string() && !item.is_number())
          throw ConfigError(text(file, ": ", split, " holds ", item.dump(), "; expected weights and prefixes"));
        words.push_back(item.is_string() ? item.string() : item.dump());
      }
    } else if (!found->is_null()) {
      throw ConfigError(text(file, ": ", split, " is ", found->dump(), "; expected a list or a text"));
    }
  }
  return all;
}

std::vector<double> normalized(std::span<const double> weights) {
  const double sum = pairwise_sum(weights);
  std::vector<double> out(weights.begin(), weights.end());
  for (auto& weight : out) weight /= sum;
  return out;
}

std::int64_t samples_of_part(std::int64_t samples, double weight, double surplus) {
  const double exact = std::ceil(static_cast<double>(samples) * weight);
  const double built = std::ceil(exact * (1 + surplus));
  constexpr double too_many = 9.2e18;
  if (!(built < too_many))
    throw ConfigError(text("a part of the blend needs ", built, " samples; the most is 2^63, ask for fewer steps"));
  return static_cast<std::int64_t>(built);
}

namespace {

BlendIndex empty_index(std::int64_t size) {
  return {IndexArray(IndexType::int16, {size}), IndexArray(IndexType::int64, {size})};
}

}  // namespace

BlendIndex build_blend_index(std::span<const double> weights, std::int64_t size) {
  auto index = empty_index(size);
  const auto part = index.part.values<std::int16_t>();
  const auto part_sample = index.part_sample.values<std::int64_t>();
  std::vector<double> used(weights.size());  // counts below 2^53, exact as doubles
  for (std::size_t s = 0; s < part.size(); ++s) {
    const double at = std::max(static_cast<double>(s), 1.0);
    std::size_t most = 0;
    double most_behind = weights[0] * at - used[0];
    for (std::size_t k = 1; k < weights.size(); ++k) {
      const double behind = weights[k] * at - used[k];
      most = behind > most_behind ? k : most;
      most_behind = std::max(behind, most_behind);
    }
    part[s] = static_cast<std::int16_t>(most);
    part_sample[s] = static_cast<std::int64_t>(used[most]);
    used[most] += 1;
  }
  return index;
}

std::string wrong_blend_index(const IndexArray& part, const IndexArray& part_sample,
                              std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> used(lengths.size());
  for (std::int64_t s = 0; s < part.size(); ++s) {
    const auto from = part[s], sample = part_sample[s];
    if (from < 0 || from >= static_cast<std::int64_t>(lengths.size()))
      return text("dataset_index has dataset ", from, " at sample ", s, "; there are ", lengths.size(), " datasets");
    auto& next = used[static_cast<std::size_t>(from)];
    if (sample != next++)
      return text("dataset_sample_index has sample ", sample, " of dataset ", from, " at ", s, "; expected ", next - 1);
    if (next > lengths[static_cast<std::size_t>(from)])
      return text("sample ", s, " is sample ", sample, " of dataset ", from, ", which has only ", next - 1);
  }
  return "";
}

BlendIndex build_exhaustive_blend_index(std::span<const std::int64_t> lengths) {
  const auto size = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  auto index = empty_index(size);
  const auto part = index.part.values<std::int16_t>();
  const auto part_sample = index.part_sample.values<std::int64_t>();
  std::vector<double> weights;
  for (const auto length : lengths) weights.push_back(static_cast<double>(length) / static_cast<double>(size));
  std::vector<std::int64_t> used(lengths.size());
  std::vector<std::size_t> left(lengths.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  for (std::size_t s = 0; s < part.size(); ++s) {
    const double at = std::max(static_cast<double>(s), 1.0);
    std::size_t most = 0;  // of `left`
    double most_behind = std::numeric_limits<double>::lowest();
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double behind = weights[left[i]] * at - static_cast<double>(used[left[i]]);
      if (behind <= most_behind) continue;
      most = i;
      most_behind = behind;
    }
    const auto k = left[most];
    part[s] = static_cast<std::int16_t>(k);
    part_sample[s] = used[k]++;
    if (used[k] == lengths[k]) left.erase(left.begin() + static_cast<std::ptrdiff_t>(most));
  }
  return index;
}

}  // namespace tessera::gpt
