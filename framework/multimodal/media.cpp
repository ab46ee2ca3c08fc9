#include "framework/multimodal/media.h"

#include <filesystem>

#include "framework/data/bad_sample.h"
#include "framework/images/picture_path.h"

namespace tessera::multimodal {
namespace {

// Runs `work`; an error of a picture becomes one of its sample.
template <class Work>
auto of_this_sample(const std::string& path, const Work& work) {
  try {
    return work();
  } catch (const ConfigError& error) {
    const std::string words = error.what(), shown = images::shown_path(path);
    throw data::BadSampleError(words.starts_with(shown) ? words : text(shown, ": ", words));
  } catch (const IoError& error) {
    throw data::BadSampleError(text(images::shown_path(path), ": ", error.what()));
  }
}

void must_be_of_one_size(const std::string& path, images::Size size, images::Size first) {
  if (size == first) return;
  throw data::BadSampleError(text(images::shown_path(path), ": the frame has ", describe(size),
                                  " pixels within the limits, the first frame of its video ", describe(first),
                                  "; give frames of one size"));
}

std::string checked_path(const std::string& address) {
  try {
    return images::path_of(address);
  } catch (const ConfigError& error) {
    throw data::BadSampleError(error.what());
  }
}

data::PatchGrid as_patch_grid(const images::Grid& grid) { return {grid.t, grid.h, grid.w}; }

}  // namespace

std::vector<std::int64_t> chosen_frames(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> chosen;
  const auto kept = std::min(count, most);
  const auto step = kept > 1 ? static_cast<double>(count - 1) / static_cast<double>(kept - 1) : 0;
  for (std::int64_t i = 0; i < kept; ++i)
    chosen.push_back(i > 0 && i + 1 == kept ? count - 1 : static_cast<std::int64_t>(static_cast<double>(i) * step));
  return chosen;
}

MediaReader::MediaReader(const MediaOptions& options) : options_(options), processor_(options.processor) {
  options_.image_limits.least_side = options_.frame_limits.least_side = options.processor.factor();
}

std::string MediaReader::found(const std::string& address, bool* as_written) const {
  const auto path = checked_path(address);
  std::error_code unknown;
  if (const auto below = std::filesystem::path(options_.media_dir) / path;
      !options_.media_dir.empty() && std::filesystem::is_regular_file(below, unknown))
    return below.string();
  if (as_written != nullptr) *as_written = true;
  return path;
}

images::Size MediaReader::limited_size_of(const std::string& path, const images::PixelLimits& limits) const {
  return of_this_sample(path, [&] {
    const auto header = images::load_header(path);
    return images::limited_size(options_.turn_by_exif ? header.upright_size() : header.size, limits);
  });
}

images::Picture MediaReader::limited_picture(const std::string& path, const images::PixelLimits& limits) const {
  return of_this_sample(path, [&] {
    auto [header, picture] = images::load_picture(path);
    if (options_.turn_by_exif) picture = images::turned_upright(std::move(picture), header.orientation);
    return images::limited(std::move(picture), limits);
  });
}

std::vector<std::string> MediaReader::frames_of(const Medium& medium) const {
  std::vector<std::string> frames;
  const auto count = static_cast<std::int64_t>(medium.frames.size());
  for (const auto i : chosen_frames(count, medium.is_video ? options_.video_maxlen : count))
    frames.push_back(found(medium.frames[static_cast<std::size_t>(i)]));
  return frames;
}

data::PatchGrid MediaReader::grid_of(const Medium& medium) const {
  const auto frames = frames_of(medium);
  const auto& limits = limits_of(medium);
  const auto size = limited_size_of(frames[0], limits);
  for (std::size_t i = 1; i < frames.size(); ++i)
    must_be_of_one_size(frames[i], limited_size_of(frames[i], limits), size);
  return of_this_sample(frames[0], [&] {
    return as_patch_grid(images::grid_of(size, static_cast<std::int64_t>(frames.size()), processor()));
  });
}

std::vector<images::Picture> MediaReader::pictures_of(const Medium& medium) const {
  std::vector<images::Picture> pictures;
  for (const auto& path : frames_of(medium)) {
    pictures.push_back(limited_picture(path, limits_of(medium)));
    must_be_of_one_size(path, pictures.back().size, pictures.front().size);
  }
  return pictures;
}

void MediaReader::write_patches(const Medium& medium, const data::PatchGrid& grid, std::span<float> patches) const {
  const auto pictures = pictures_of(medium);
  of_this_sample(found(medium.frames[0]), [&] {
    const auto frames = static_cast<std::int64_t>(pictures.size());
    if (as_patch_grid(images::grid_of(pictures[0].size, frames, processor())) != grid)
      throw ConfigError("the picture has another size than when the run began; restart the run");
    processor_.process(pictures, patches);
    return true;
  });
}

std::vector<std::string> MediaReader::png_files(const Medium& medium) const {
  std::vector<std::string> files;
  for (const auto& picture : pictures_of(medium))
    files.push_back(
        of_this_sample(found(medium.frames[0]), [&] { return images::png_of(processor_.resized(picture)); }));
  return files;
}

}  // namespace tessera::multimodal
