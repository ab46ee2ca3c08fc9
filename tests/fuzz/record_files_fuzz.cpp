// Files of records: LLaVA's, and those of the dataset `mllm`. Refused with a ConfigError, or each record can be read,
// and what the conversion of LLaVA writes is a list of records with a message for each turn.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/multimodal/llava.h"
#include "framework/multimodal/record.h"
#include "framework/multimodal/record_files.h"

namespace {

using namespace tessera;

void require(bool holds) {
  if (!holds) std::abort();
}

std::string input_of(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("records", 0);
  require(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  return "/proc/self/fd/" + std::to_string(file);
}

/// Reads all records of a file that may be damaged, each by itself.
std::int64_t read_records(const std::string& file) {
  const multimodal::RecordFiles records({file}, std::nullopt);
  for (std::int64_t i = 0; i < records.records(); ++i) {
    try {
      std::string why;
      multimodal::read_record(records.record(i), {}, why);
    } catch (const ConfigError&) {
    }
  }
  return records.records();
}

void convert(const std::string& input) {
  static const auto output =
      (std::filesystem::temp_directory_path() / ("llava_fuzz_" + std::to_string(getpid()))).string();
  std::filesystem::remove(output);
  const auto made = multimodal::convert_llava({input, "/proc/self", output});  // there are files of some names
  const auto json = parse_json(read_file(output));
  if (json.is_discarded()) return;  // a lone surrogate, which Python writes too
  require(json.is_array() && static_cast<std::int64_t>(json.size()) == made.records && made.dropped >= 0);
  for (const auto& record : json)
    for (const auto& message : record["messages"]) require(message.contains("role") && message.contains("content"));
  if (made.records > 0) require(read_records(output) == made.records);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = input_of(data, size);
  try {
    read_records(file);
  } catch (const ConfigError&) {
  }
  try {
    convert(file);
  } catch (const ConfigError&) {
  }
  return 0;
}
