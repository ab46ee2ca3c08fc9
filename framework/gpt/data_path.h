#pragma once

#include <string>
#include <vector>

#include "framework/options/option_type.h"

namespace tessera::gpt {

/// The value of a data path option: a prefix of .bin and .idx files, or a list of weights and prefixes. A text is split
/// at blanks.
struct DataPath {
  std::vector<std::string> parts;
  bool empty() const { return parts.empty(); }

  struct Option : options::OneValue<DataPath> {
    static std::string name() { return "prefix, or list of weights and prefixes, or null"; }
    static std::string json_schema() {
      return R"({"anyOf": [{"$ref": "#/$defs/text"}, {"type": "array", "items": {"$ref": "#/$defs/text"}}]})";
    }
    static bool read(const options::Value& value, DataPath& out);
    static options::Value write(const DataPath& path);
  };
};

}  // namespace tessera::gpt
