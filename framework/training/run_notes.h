#pragma once

#include <string>
#include <vector>

namespace tessera::training {

/// `resolved_recipe` with `notes`, the remarks on reading the recipe, appended as comments. Written as the run folder's
/// resolved.yaml, so that the next start of the run does not print them again.
std::string with_notes(const std::string& resolved_recipe, const std::vector<std::string>& notes);

/// The `notes` that are not in `resolved_yaml`, the content of such a file.
std::vector<std::string> new_notes(const std::vector<std::string>& notes, const std::string& resolved_yaml);

}  // namespace tessera::training
