#pragma once

#include <string>
#include <vector>

namespace tessera::reporting {

/// Returns `resolved_recipe` with `notes`, the remarks made while the recipe was read, appended as comments. The result
/// is written as resolved.yaml of the run folder, so that the next start of the run does not repeat the notes.
std::string with_notes(const std::string& resolved_recipe, const std::vector<std::string>& notes);

/// Returns the `notes` that are not contained in `resolved_yaml`, the content of such a file.
std::vector<std::string> new_notes(const std::vector<std::string>& notes, const std::string& resolved_yaml);

}  // namespace tessera::reporting
