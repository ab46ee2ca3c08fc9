#include "framework/tokenizers/token_origin.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
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
};

std::optional<Origin> origin_of(const Tokenizer& tokenizer) {
  try {
    std::vector<std::int32_t> ids;
    tokenizer.encoder()->encode(sample_text, ids);
    return Origin{crc32c(std::as_bytes(std::span(ids))), tokenizer.vocab_size(), tokenizer.identity().class_name};
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
    return Origin{static_cast<std::uint32_t>(json.at("ids_of_sample").get<std::int64_t>()),
                  json.at("vocab_size").get<std::int64_t>(), json.at("class").get<std::string>()};
  } catch (const Error&) {
    return std::nullopt;
  }
}

void save(const std::string& prefix, const Origin& origin, std::int64_t bytes) {
  const Json json = {{"class", origin.class_name},
                     {"vocab_size", origin.vocab_size},
                     {"ids_of_sample", std::int64_t{origin.ids}},
                     {"bin_bytes", bytes}};
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
  if (!made || !own || made->ids == own->ids) return "";
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
  std::map<std::uint32_t, std::string> known;  // the first prefix of each
  for (const auto& prefix : prefixes)
    if (const auto origin = read_origin(prefix)) known.emplace(origin->ids, prefix);
  if (known.size() > 1)
    throw ConfigError(text(known.begin()->second, ".bin and ", known.rbegin()->second,
                           ".bin were made with different tokenizers; merge datasets of one tokenizer"));
}

void write_merged_origin(const std::vector<std::string>& prefixes, const std::string& merged) {
  const auto bytes = data_bytes(merged);
  std::optional<Origin> first;
  for (const auto& prefix : prefixes) {
    const auto origin = read_origin(prefix);
    if (!origin || !bytes || (first && first->ids != origin->ids)) return delete_all(origin_file(merged));
    if (!first) first = origin;
  }
  if (first) save(merged, *first, *bytes);
}

}  // namespace tessera::tokenizers
