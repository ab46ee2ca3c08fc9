#include "framework/recipe/planned.h"

#include "framework/base/error.h"
#include "framework/options/embedded.h"

namespace tessera {

const PlannedOptions& planned_options() {
  static const PlannedOptions all = [] {
    const auto files = embedded_planned();
    must(files.size() == 1, "recipe/planned.yaml is compiled in");
    return PlannedOptions(std::string(files[0].text), "framework/recipe/" + std::string(files[0].name));
  }();
  return all;
}

}  // namespace tessera
