#include <yaml-cpp/yaml.h>

#include "framework/base/error.h"
#include "framework/options/yaml.h"

namespace tessera::options {
namespace {

/// `words` with ${ escaped, so that reading does not expand ${NAME} from the environment.
std::string guarded(const std::string& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words.compare(i, 2, "${") == 0) out += '$';
    out += words[i];
  }
  return out;
}

void emit(YAML::Emitter& out, const Value& value) {
  switch (value.kind) {
    case Value::Kind::none:
      out << YAML::Null;
      break;
    case Value::Kind::scalar:
      out << guarded(value.scalar);
      break;
    case Value::Kind::list:
      out << YAML::Flow << YAML::BeginSeq;
      for (const auto& item : value.items) emit(out, item);
      out << YAML::EndSeq;
      break;
    case Value::Kind::group:
      out << YAML::BeginMap;
      for (const auto& [name, field] : value.fields) {
        out << YAML::Key << name << YAML::Value;
        emit(out, field);
        if (field.kind != Value::Kind::group) out << YAML::Comment(text(field.origin));
      }
      out << YAML::EndMap;
      break;
  }
}

}  // namespace

std::string write_yaml(const Value& tree) {
  YAML::Emitter out;
  emit(out, tree);
  return std::string(out.c_str()) + "\n";
}

}  // namespace tessera::options
