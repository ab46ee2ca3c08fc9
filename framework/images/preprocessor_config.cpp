#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/base/visible_text.h"
#include "framework/images/processor.h"

namespace tessera::images {
namespace {

/// Reads the members of a preprocessor_config.json and collects what is wrong with them.
class ConfigReader {
 public:
  explicit ConfigReader(const Json& config) : config_(config) {}

  /// The member `name` as a T; `value` stays if it is absent or null.
  template <class T>
  void read(std::string_view name, T& value) {
    read_from(config_, name, value);
  }

  void read_limits(ProcessorOptions& options) {
    if (const auto* size = config_.find("size"); size && size->is_object()) {
      read_from(*size, "shortest_edge", options.min_pixels);
      read_from(*size, "longest_edge", options.max_pixels);
      read_from(*size, "min_pixels", options.min_pixels);
      read_from(*size, "max_pixels", options.max_pixels);
      if (size->contains("height") || size->contains("width"))
        mistake("size has a height or a width, a fixed size; shortest_edge and longest_edge were expected");
      else
        refuse_other_sizes(*size);
    } else if (size && !size->is_null()) {
      mistake(text("size is ", shortened(visible(size->dump())), "; {shortest_edge, longest_edge} was expected"));
    }
    read("min_pixels", options.min_pixels);
    read("max_pixels", options.max_pixels);
  }

  /// A list of three numbers, or one for all channels.
  void read_channels(std::string_view name, std::array<double, 3>& values) {
    const auto* found = config_.find(name);
    if (found && found->is_number())
      values.fill(found->number());
    else
      read(name, values);
  }

  void read_resample() {
    constexpr int bicubic = 3;  // Pillow's number
    int resample = bicubic;
    read("resample", resample);
    if (resample != bicubic)
      mistake(text("resample is ", resample, "; 3 (BICUBIC) was expected, no other is supported"));
  }

  void read_class(ProcessorOptions& options) {
    std::string name;
    read("image_processor_type", name);
    if (name == "Qwen2VLImageProcessorPil")
      options.backend = Backend::pil;
    else if (name == "Qwen2VLImageProcessorFast")
      options.backend = Backend::torchvision;
    else if (!name.empty() && name != "Qwen2VLImageProcessor")
      mistake(text("image_processor_type is ", visible(name), "; Qwen2VLImageProcessor was expected"));
  }

  void mistake(const std::string& what) { mistakes_.push_back(what); }
  void refuse_mistakes() const {
    if (!mistakes_.empty()) throw ConfigError(joined(mistakes_, "\n"));
  }

 private:
  void refuse_other_sizes(const Json& size) {
    for (const auto& [key, value] : size.items())
      if (key != "shortest_edge" && key != "longest_edge" && key != "min_pixels" && key != "max_pixels" &&
          !value.is_null())
        mistake(text("size has \"", shortened(visible(key)), "\"; shortest_edge and longest_edge were expected"));
  }
  template <class T>
  void read_from(const Json& object, std::string_view name, T& value) {
    const auto* found = object.find(name);
    if (!found || found->is_null()) return;
    try {
      value = found->get<T>();
    } catch (const JsonError& error) {
      mistake(text(name, " is ", shortened(visible(found->dump())), ": ", error.what()));
    }
  }

  const Json& config_;
  std::vector<std::string> mistakes_;
};

/// Collects the values that are out of their range.
class RangeCheck {
 public:
  template <class T>
  void within(const char* name, T value, T least, T most) {
    if (!(value >= least && value <= most))
      mistakes_.push_back(text(name, " is ", value, "; ", least, " to ", most, " was expected"));
  }
  void finite(const char* name, double value, bool zero_too) {
    if (!std::isfinite(value) || (!zero_too && value == 0))
      mistakes_.push_back(
          text(name, " is ", value, "; a finite number", zero_too ? "" : " other than 0", " was expected"));
  }
  void refuse() const {
    if (!mistakes_.empty()) throw ConfigError(joined(mistakes_, "\n"));
  }

 private:
  std::vector<std::string> mistakes_;
};

/// Pixels of a picture above which sizes would not fit into the types of a grid.
constexpr std::int64_t most_pixels = std::int64_t{1} << 40;

}  // namespace

void check(const ProcessorOptions& options) {
  RangeCheck range;
  range.within<std::int64_t>("max_pixels", options.max_pixels, 1, most_pixels);
  range.within<std::int64_t>("min_pixels", options.min_pixels, 0, std::max<std::int64_t>(options.max_pixels, 0));
  range.within("patch_size", options.patch_size, 1, 1024);
  range.within("temporal_patch_size", options.temporal_patch_size, 1, 64);
  range.within("merge_size", options.merge_size, 1, 64);
  range.finite("rescale_factor", options.rescale_factor, false);
  for (const double mean : options.mean) range.finite("image_mean", mean, true);
  for (const double deviation : options.standard_deviation) range.finite("image_std", deviation, false);
  range.refuse();
}

std::filesystem::path processor_file(const std::filesystem::path& folder, const std::string& prefix) {
  const auto usual = folder / (prefix + "preprocessor_config.json"),
             later = folder / (prefix + "processor_config.json");
  return !std::filesystem::exists(usual) && std::filesystem::exists(later) ? later : usual;
}

ProcessorOptions read_processor_options(std::string_view json) {
  std::string why;
  const auto whole = parse_json(json, &why);
  if (whole.is_discarded()) throw ConfigError(text("this is not JSON: ", why));
  if (!whole.is_object())
    throw ConfigError(text("this is JSON of type ", whole.type_name(), "; an object was expected"));
  // A processor_config.json of Transformers 5 has it among others.
  const auto* nested = whole.find("image_processor");
  const auto& config = nested && nested->is_object() ? *nested : whole;
  ConfigReader reader(config);
  ProcessorOptions options;
  reader.read_limits(options);
  reader.read("patch_size", options.patch_size);
  reader.read("temporal_patch_size", options.temporal_patch_size);
  reader.read("merge_size", options.merge_size);
  reader.read_channels("image_mean", options.mean);
  reader.read_channels("image_std", options.standard_deviation);
  reader.read("rescale_factor", options.rescale_factor);
  reader.read("do_resize", options.resize);
  reader.read("do_rescale", options.rescale);
  reader.read("do_normalize", options.normalize);
  reader.read_resample();
  reader.read_class(options);
  reader.refuse_mistakes();
  check(options);
  return options;
}

}  // namespace tessera::images
