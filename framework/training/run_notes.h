#pragma once

#include <string>
#include <vector>

namespace tessera {

/// What reading the recipe of a run had to tell is told once in a run: it stands as comments in the run folder's
/// resolved.yaml, where the next start finds it.
std::string with_notes(const std::string& resolved_recipe, const std::vector<std::string>& notes);

/// Those of `notes` that `resolved_yaml`, the content of such a file, does not have.
std::vector<std::string> new_notes(const std::vector<std::string>& notes, const std::string& resolved_yaml);

}  // namespace tessera
