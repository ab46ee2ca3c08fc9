#include "framework/recipe/planned_options.h"

namespace tessera {

const PlannedOptions& planned_options() {
  static const PlannedOptions all(planned_rows(), "framework/recipe/planned.yaml");
  return all;
}

}  // namespace tessera
