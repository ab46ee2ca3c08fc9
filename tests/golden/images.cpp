#include "tests/golden/images.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/sha256.h"
#include "framework/images/inference.h"
#include "framework/images/limits.h"
#include "framework/images/processor.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace images;

template <class T>
std::string hash_of(std::span<const T> values) {
  return sha256({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}
template <class T>
std::string hash_of(const std::vector<T>& values) {
  return hash_of(std::span<const T>(values));
}

/// The samples as Pillow's tobytes gives them: of mode "1" eight to a byte.
std::vector<std::uint8_t> as_in_pillow(const Picture& picture) {
  if (picture.mode != Mode::one) return picture.samples;
  std::vector<std::uint8_t> packed;
  for (std::int64_t y = 0; y < picture.size.height; ++y) {
    const auto row = picture.row(y);
    const auto first = packed.size();
    packed.resize(first + (row.size() + 7) / 8);
    for (std::size_t x = 0; x < row.size(); ++x)
      packed[first + x / 8] = static_cast<std::uint8_t>(packed[first + x / 8] | (row[x] & 0x80) >> x % 8);
  }
  return packed;
}

/// Compares what is recorded of one file or video with what is computed.
class PixelCase {
 public:
  void same(const std::string& what, const json& recorded, const json& got) {
    ++compared_;
    if (recorded != got) wrong(text(what, " is ", got.dump(), ", recorded ", recorded.dump()));
  }
  /// Runs `compute`, which throws where the recorded entry says so.
  template <class Compute>
  void entry(const std::string& what, const json& recorded, const Compute& compute) {
    try {
      compute();
      if (recorded.contains("raises")) wrong(text(what, " is no error, recorded ", recorded.at("says").dump()));
    } catch (const ConfigError& error) {
      ++compared_;
      if (!recorded.contains("raises")) wrong(text(what, ": ", error.what()));
    }
  }
  void picture(const std::string& what, const json& recorded, const Picture& got) {
    if (recorded.contains("raises")) return;
    same(what + " size", json{recorded.at("width"), recorded.at("height")}, json{got.size.width, got.size.height});
    same(what + " sha256", recorded.at("sha256"), hash_of(got.samples));
  }
  void patches(const std::string& what, const json& recorded, std::span<const Picture> frames,
               const ProcessorOptions& options) {
    entry(what, recorded, [&] {
      const Processor processor(options);
      const auto patches = processor.process(frames);
      if (recorded.contains("raises")) return;
      same(what + " grid_thw", recorded.at("grid_thw"), json{patches.grid.t, patches.grid.h, patches.grid.w});
      same(what + " levels", recorded.at("levels_sha256"), hash_of(processor.levels(frames)));
      same(what + " floats", recorded.at("float_sha256"), hash_of(patches.values));
    });
  }

  CaseResult result(const std::string& name) const {
    if (!wrong_.empty()) return {name, CaseResult::Verdict::failed, wrong_};
    return {name, CaseResult::Verdict::passed, text(compared_, " values, equal to the bit")};
  }

 private:
  void wrong(const std::string& what) { wrong_ += (wrong_.empty() ? "" : "; ") + what; }

  int compared_ = 0;
  std::string wrong_;
};

ProcessorOptions options_of(const std::string& backend, std::int64_t min_pixels, std::int64_t max_pixels) {
  ProcessorOptions options;
  options.backend = backend == "pil" ? Backend::pil : Backend::torchvision;
  options.min_pixels = min_pixels;
  options.max_pixels = max_pixels;
  return options;
}

void judge_decoded(const fs::path& path, const json& recorded, PixelCase& judge) {
  const auto& decoded = recorded.at("decoded");
  judge.entry("decoded", decoded, [&] {
    const auto [header, picture] = load_picture(path);
    if (decoded.contains("raises")) return;
    judge.same("format", decoded.at("format"), std::string(describe(header.format)));
    judge.same("mode", decoded.at("mode"), std::string(describe(header.mode)));
    judge.same("size", json{decoded.at("width"), decoded.at("height")}, json{header.size.width, header.size.height});
    judge.same("samples", decoded.at("sha256"), hash_of(as_in_pillow(picture)));
    judge.same("transparency", decoded.at("transparency"), header.transparent_colour);
    const auto& orientation = decoded.at("orientation");
    judge.same("orientation", orientation.is_null() ? json(1) : orientation, header.orientation);
    judge.same("rgb", recorded.at("rgb_sha256"), hash_of(to_rgb(picture).samples));
    judge.same("size of the header", json{decoded.at("width"), decoded.at("height")},
               json{load_header(path).size.width, load_header(path).size.height});
  });
}

void judge_limits(const fs::path& path, const std::string& name, const json& limits, const json& recorded,
                  PixelCase& judge) {
  judge.entry(name + " limited", recorded.at("limited"), [&] {
    const PixelLimits pixels = {limits.at("image_max_pixels"), limits.at("image_min_pixels")};
    const auto file = load_picture(path).picture;
    const auto picture = limited(file, pixels);
    judge.picture(name + " limited", recorded.at("limited"), picture);
    const auto foreseen = limited_size(file.size, pixels);
    judge.same(name + " foreseen size", json{picture.size.width, picture.size.height},
               json{foreseen.width, foreseen.height});
    for (const auto* backend : {"pil", "torchvision"})
      if (recorded.contains(backend))
        judge.patches(name + " " + backend, recorded.at(backend), std::span(&picture, 1),
                      options_of(backend, limits.at("processor_min_pixels"), limits.at("processor_max_pixels")));
  });
}

FetchLimits fetch_limits_of(const std::string& name) {
  if (name == "qwen_vl_utils min_1003520") return {.min_pixels = 1003520, .max_pixels = 12845056};
  if (name == "qwen_vl_utils max_50176") return {.min_pixels = 3136, .max_pixels = 50176};
  return {};
}

void judge_inference(const fs::path& path, const json& recorded, PixelCase& judge) {
  for (const auto& [name, entry] : recorded.items())
    judge.entry(name, entry, [&, label = name, value = entry] {
      auto [header, picture] = load_picture(path);
      judge.picture(label, value,
                    label == "transformers.load_image" ? to_rgb(turned_upright(std::move(picture), header.orientation))
                                                       : fetched(std::move(picture), fetch_limits_of(label)));
    });
}

CaseResult judge_file(const fs::path& path, const json& limits, const json& recorded) {
  PixelCase judge;
  judge_decoded(path, recorded, judge);
  for (const auto& [name, entry] : recorded.at("cases").items())
    judge_limits(path, name, limits.at(name), entry, judge);
  if (recorded.contains("inference")) judge_inference(path, recorded.at("inference"), judge);
  return judge.result(path.filename().string());
}

CaseResult judge_video(const fs::path& files, const std::string& name, const json& recorded) {
  PixelCase judge;
  std::vector<Picture> frames;
  std::vector<std::string> hashes;
  for (const std::string file : recorded.at("frames")) {
    frames.push_back(limited(load_picture(files / file).picture,
                             {recorded.at("video_max_pixels"), recorded.at("video_min_pixels")}));
    hashes.push_back(hash_of(frames.back().samples));
  }
  judge.same("limited", recorded.at("limited").at("sha256"), hashes);
  for (const auto& [version, entry] : recorded.at("by_version").items())
    for (const std::string backend : {"pil", "torchvision"})
      if (version.size() > backend.size() && version.ends_with(" " + backend))
        judge.patches(version, entry, frames, options_of(backend, 3136, 12845056));
  return judge.result(name);
}

}  // namespace

bool is_pixels(const fs::path& folder) {
  if (!fs::exists(folder / "cases.json") || !fs::is_directory(folder / "files")) return false;
  const auto cases = json::parse(read_file(folder / "cases.json"), nullptr, false);
  return cases.is_object() && cases.contains("limits") && cases.contains("videos") && cases.contains("files");
}

std::vector<CaseResult> run_pixel_cases(const fs::path& folder) {
  const auto cases = json::parse(read_file(folder / "cases.json"));
  std::vector<CaseResult> results;
  for (const auto& [name, recorded] : cases.at("files").items())
    results.push_back(judge_file(folder / "files" / name, cases.at("limits"), recorded));
  for (const auto& [name, recorded] : cases.at("videos").items())
    results.push_back(judge_video(folder / "files", name, recorded));
  return results;
}

}  // namespace tessera::golden
