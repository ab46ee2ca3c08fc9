// JSON lines. Each line: refused with a ConfigError, or its texts are UTF-8 if the line is, and what another library
// reads where that library accepts the line as an object. The lines of the whole input: the same, however it is cut
// into chunks.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/files/json_line.h"
#include "framework/preprocessing/text_chunks.h"
#include "framework/unicode/utf8.h"

namespace {

using namespace tessera;

void require(bool holds) {
  if (!holds) std::abort();
}

// The texts of `value` are those of key `key`, unless it has no value of the accepted form.
void compare(const nlohmann::ordered_json& value, const files::JsonLine& line, std::size_t key) {
  if (value.is_string()) {
    require(!line.is_list(key) && line.texts(key).size() == 1 &&
            line.texts(key)[0] == value.get_ref<const std::string&>());
    return;
  }
  require(value.is_array() && line.is_list(key) && line.texts(key).size() == value.size());
  for (std::size_t i = 0; i < value.size(); ++i)
    require(value[i].is_string() && line.texts(key)[i] == value[i].get_ref<const std::string&>());
}

void parse_line(files::JsonLine& parser, std::string_view line) {
  const auto other = parse_json<nlohmann::ordered_json>(line);
  try {
    parser.parse(line);
  } catch (const ConfigError&) {
    return;
  }
  if (unicode::first_not_utf8(line) != std::string_view::npos) return;  // its callers refuse such a line before
  for (std::size_t key = 0; key < parser.keys(); ++key)
    for (const auto words : parser.texts(key)) require(unicode::first_not_utf8(words) == std::string_view::npos);
  if (!other.is_object()) return;  // NaN, a lone surrogate, a number beyond double: Python takes more
  compare(other.at("text"), parser, 0);
  compare(other.at("t"), parser, 1);
}

std::vector<std::string> lines_of(const std::string& name, std::size_t chunk_bytes) {
  preprocessing::ChunkReader reader({{name}}, chunk_bytes, true);
  std::vector<std::string> all;
  preprocessing::TextChunk chunk;
  while (reader.next(chunk)) {
    require(chunk.first_line == static_cast<std::int64_t>(all.size()));
    std::string_view rest = chunk.bytes, line;
    while (preprocessing::take_line(rest, line)) all.emplace_back(line);
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  files::JsonLine parser({"text", "t"});
  std::size_t begin = 0;
  for (auto end = all.find('\n'); end != std::string_view::npos; end = all.find('\n', begin)) {
    parse_line(parser, all.substr(begin, end - begin));
    begin = end + 1;
  }
  parse_line(parser, all.substr(begin));

  static const int file = memfd_create("lines", 0);
  static const auto name = "/proc/self/fd/" + std::to_string(file);
  require(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  try {
    const auto whole = lines_of(name, size + 1);
    require(whole.size() == static_cast<std::size_t>(preprocessing::count_lines(all)));
    for (const std::size_t chunk_bytes : {1U, 7U}) require(lines_of(name, chunk_bytes) == whole);
  } catch (const ConfigError&) {  // an empty file, a damaged compressed one
  }
  return 0;
}
