#include "framework/interop/hugging_face/window_rules.h"

#include <algorithm>
#include <functional>

#include "framework/base/json.h"

namespace tessera::hugging_face {
namespace {

using Windowed = std::vector<bool>;  ///< of each layer whether its attention has the window

const std::string whole = "full_attention", in_window = "sliding_attention";
constexpr std::int64_t most_window = std::int64_t{1} << 30;

/// What config.json says of every layer (layer_types); nothing if it does not.
std::optional<Windowed> listed_layers(const ConvertedConfig& c) {
  const auto* given = c.find("facts.layer_types");
  if (given == nullptr) return std::nullopt;
  const auto list = parse_json(given->scalar);
  const auto known = [](const Json& word) { return word == whole || word == in_window; };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), known))
    c.problem(text("layer_types is ", *given, "; expected ", whole, " or ", in_window, " for each layer"));
  if (static_cast<std::int64_t>(list.size()) != c.layers())
    c.problem(text("layer_types lists ", list.size(), " layers; expected num_hidden_layers, ", c.layers()));
  Windowed layers;
  for (const auto& word : list) layers.push_back(word == in_window);
  return layers;
}

bool is_used(const ConvertedConfig& c) { return c.says("facts.use_window", "true"); }

std::optional<std::int64_t> window(const ConvertedConfig& c) { return c.integer("facts.window", 1, most_window); }

Windowed layers_where(const ConvertedConfig& c, const std::function<bool(std::int64_t layer)>& has_window) {
  Windowed layers;
  for (std::int64_t i = 0; i < c.layers(); ++i) layers.push_back(has_window(i));
  return layers;
}

bool any(const Windowed& layers) { return std::find(layers.begin(), layers.end(), true) != layers.end(); }

void set_windows(ConvertedConfig& c, const Windowed& layers) {
  if (!any(layers)) return c.erase("rope_local_base_freq");  // of layers with a window
  const auto width = is_used(c) ? window(c) : std::nullopt;
  if (!width)
    c.problem(text(
        "layer_types has ", in_window, ", but ",
        is_used(c) ? "sliding_window is null; give it" : "use_sliding_window is not true; give it and sliding_window"));
  c.set("sliding_window", text(*width));
  if (std::find(layers.begin(), layers.end(), false) == layers.end()) return;
  std::vector<std::string> words;
  for (const bool windowed : layers) words.push_back(windowed ? in_window : whole);
  c.set_list("layer_types", words);
}

std::int64_t bound(const ConvertedConfig& c) {
  const auto layers = c.integer("facts.window_layers", 0, most_window);
  if (!layers) c.problem("max_window_layers is null, and use_sliding_window is true; expected a number of layers");
  return *layers;
}

/// Of each layer whether it has the window in our configuration.
Windowed our_layers(const ConvertedConfig& c) {
  const auto* types = c.find("layer_types");
  const bool all = types == nullptr || types->items.empty();
  return layers_where(c, [&](std::int64_t layer) {
    return all || types->items[static_cast<std::size_t>(layer) % types->items.size()].scalar == in_window;
  });
}

Json words_of(const Windowed& layers) {
  Json words = Json::array();
  for (const bool windowed : layers) words.push_back(windowed ? in_window : whole);
  return words;
}

/// Sets use_window and window; returns the latter, empty if there is none.
std::string written_window(ConvertedConfig& c) {
  const auto* value = c.find("sliding_window");
  const std::string width = value == nullptr ? "" : value->scalar;  // `value` does not outlive the next set
  c.set("facts.use_window", width.empty() ? "false" : "true");
  if (!width.empty()) c.set("facts.window", width);
  return width;
}

}  // namespace

void read_upper_windows(ConvertedConfig& c) {
  if (auto listed = listed_layers(c)) return set_windows(c, *listed);
  if (!is_used(c) || !window(c)) return;
  const auto first = bound(c);
  set_windows(c, layers_where(c, [&](std::int64_t layer) { return layer >= first; }));
}

void read_alternate_windows(ConvertedConfig& c) {
  if (auto listed = listed_layers(c)) return set_windows(c, *listed);
  if (!is_used(c)) return;
  const auto end = bound(c);
  const auto layers = layers_where(c, [&](std::int64_t layer) { return layer % 2 == 0 && layer < end; });
  if (!window(c)) c.problem("use_sliding_window is true, but sliding_window is null; give a number of tokens");
  set_windows(c, layers);
  c.note("every other layer before max_window_layers has the window, as in Transformers 5; Transformers 4 differs");
}

void read_periodic_windows(ConvertedConfig& c) {
  if (auto listed = listed_layers(c)) return set_windows(c, *listed);
  const auto period = c.integer("facts.window_period", 1, most_window);
  if (!period) c.problem("the pattern of windows is null; expected a number of layers");
  set_windows(c, layers_where(c, [&](std::int64_t layer) { return (layer + 1) % *period != 0; }));
}

void read_common_window(ConvertedConfig& c) {
  if (const auto width = window(c); is_used(c) && width) c.set("sliding_window", text(*width));
}

void write_common_window(ConvertedConfig& c) {
  const auto width = written_window(c);
  if (width.empty()) return;
  const auto layers = our_layers(c);
  if (std::find(layers.begin(), layers.end(), false) != layers.end())
    c.problem("has the window in all layers; layer_types has it in some");
}

void write_layer_windows(ConvertedConfig& c) {
  if (written_window(c).empty()) return;
  const auto layers = our_layers(c);
  c.set("facts.window_layers", text(std::find(layers.begin(), layers.end(), true) - layers.begin()));
  c.set("facts.layer_types", words_of(layers).dump());
}

void write_listed_windows(ConvertedConfig& c) {
  const bool none = written_window(c).empty();
  const auto nowhere = [](std::int64_t) { return false; };
  c.set("facts.layer_types", words_of(none ? layers_where(c, nowhere) : our_layers(c)).dump());
}

}  // namespace tessera::hugging_face
