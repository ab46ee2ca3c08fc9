#include "framework/tokenizers/token_origin.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/base/json.h"

namespace tessera::tokenizers {
namespace {

namespace fs = std::filesystem;

/// Common and rare words of several scripts, numbers, code and blanks: vocabularies of other texts or sizes split it in
/// other places.
constexpr std::string_view sample_text =
    "The quick brown fox can't jump over 12,345.67 lazy dogs; nevertheless, internationalisation matters.\n\n"
    "    for (int i = 0; i < n; ++i) sum += values[i];\t// total\n"
    "Größe, façade, naïve, Übermut. Быстрая лиса прыгает. 敏捷的狐狸跳过懒狗。すばやい狐。الثعلب السريع. 😀🚀";

struct Origin {
  std::uint32_t ids = 0;  ///< checksum
  std::int64_t vocab_size = 0;
  std::string class_name;
  std::optional<bool> splits_special_tokens;  ///< null: the file was written before it had this member
  bool operator==(const Origin&) const = default;
};

/// Whether one of two tokenizers of a class reads special tokens in a text as ordinary text, and the other does not:
/// the sample text has none. Classes differ in what they find in a text at all, so they are not compared.
bool split_differently(const Origin& one, const Origin& other) {
  return one.class_name == other.class_name && one.splits_special_tokens && other.splits_special_tokens &&
         *one.splits_special_tokens != *other.splits_special_tokens;
}

bool is_same(const Origin& one, const Origin& other) { return one.ids == other.ids && !split_differently(one, other); }

std::optional<Origin> origin_of(const Tokenizer& tokenizer) {
  try {
    std::vector<std::int32_t> ids;
    tokenizer.encoder()->encode(sample_text, ids);
    return Origin{crc32c(std::as_bytes(std::span(ids))), tokenizer.vocab_size(), tokenizer.identity().class_name,
                  tokenizer.splits_special_tokens()};
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Size of the token file, in bytes; nothing: it cannot be read.
std::optional<std::int64_t> data_bytes(const std::string& prefix) {
  std::error_code failed;
  const auto bytes = fs::file_size(prefix + ".bin", failed);
  if (failed) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

std::optional<Origin> read_origin(const std::string& prefix) {
  try {
    const auto json = parse_json(read_file(origin_file(prefix)));
    if (data_bytes(prefix) != json.at("bin_bytes").get<std::int64_t>()) return std::nullopt;
    Origin origin{static_cast<std::uint32_t>(json.at("ids_of_sample").get<std::int64_t>()),
                  json.at("vocab_size").get<std::int64_t>(), json.at("class").get<std::string>(), std::nullopt};
    if (json.contains("splits_special_tokens"))
      origin.splits_special_tokens = json.at("splits_special_tokens").get<bool>();
    return origin;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void save(const std::string& prefix, const Origin& origin, std::int64_t bytes) {
  Json json = {{"class", origin.class_name},
               {"vocab_size", origin.vocab_size},
               {"ids_of_sample", std::int64_t{origin.ids}},
               {"bin_bytes", bytes}};
  if (origin.splits_special_tokens) json["splits_special_tokens"] = *origin.splits_special_tokens;
  write_file_atomic(origin_file(prefix), json.dump(2) + "\n");
}

}  // namespace

std::string origin_file(const std::string& prefix) { return prefix + ".tokenizer.json"; }

void write_origin(const std::string& prefix, const Tokenizer& tokenizer) {
  const auto origin = origin_of(tokenizer);
  const auto bytes = data_bytes(prefix);
  if (!origin || !bytes) return delete_all(origin_file(prefix));
  save(prefix, *origin, *bytes);
}

std::string other_origin(const std::string& prefix, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr || !fs::exists(origin_file(prefix))) return "";
  const auto made = read_origin(prefix), own = origin_of(*tokenizer);
  if (!made || !own || is_same(*made, *own)) return "";
  if (made->ids == own->ids)
    return text(prefix, ".bin was made by a tokenizer that encodes special tokens in a text ",
                *made->splits_special_tokens ? "as ordinary text" : "as themselves", ", and the run's encodes them ",
                *own->splits_special_tokens ? "as ordinary text" : "as themselves",
                "; make the data again with `tessera data preprocess`, or change split_special_tokens");
  return text(prefix, ".bin was made with another tokenizer than the run's: that one has ", made->vocab_size,
              " tokens and this one ", own->vocab_size,
              ", and they give a text other ids; make the data again with `tessera data preprocess`, or choose that "
              "tokenizer");
}

std::string origin_text(const Tokenizer& tokenizer) {
  const auto origin = origin_of(tokenizer);
  return origin ? text(origin->class_name, " ", origin->vocab_size, " ", origin->ids) : "";
}

void must_have_one_origin(const std::vector<std::string>& prefixes) {
  std::vector<std::pair<Origin, std::string>> known;
  for (const auto& prefix : prefixes) {
    const auto origin = read_origin(prefix);
    if (!origin) continue;
    for (const auto& [other, name] : known)
      if (!is_same(*origin, other))
        throw ConfigError(text(name, ".bin and ", prefix,
                               ".bin were made with different tokenizers; merge datasets of one tokenizer"));
    if (std::none_of(known.begin(), known.end(), [&](const auto& one) { return one.first == *origin; }))
      known.emplace_back(*origin, prefix);
  }
}

void write_merged_origin(const std::vector<std::string>& prefixes, const std::string& merged) {
  const auto bytes = data_bytes(merged);
  std::vector<Origin> all;
  for (const auto& prefix : prefixes) {
    const auto origin = read_origin(prefix);
    if (!origin || !bytes ||
        std::any_of(all.begin(), all.end(), [&](const auto& one) { return !is_same(one, *origin); }))
      return delete_all(origin_file(merged));
    all.push_back(*origin);
  }
  if (all.empty()) return;
  auto common = all.front();
  for (const auto& one : all)
    if (!common.splits_special_tokens && one.class_name == common.class_name)
      common.splits_special_tokens = one.splits_special_tokens;
  save(merged, common, *bytes);
}

}  // namespace tessera::tokenizers
