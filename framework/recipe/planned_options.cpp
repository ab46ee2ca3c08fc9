#include "framework/recipe/planned_options.h"

namespace tessera::recipe {

const options::PlannedOptions& planned_options() {
  static const options::PlannedOptions all(planned_rows(), "framework/recipe/planned.yaml");
  return all;
}

}  // namespace tessera::recipe
