#include "framework/multimodal/mllm_options.h"

#include <filesystem>

#include "framework/base/error.h"
#include "framework/files/input_file.h"
#include "framework/options/limits.h"

namespace tessera::multimodal {
namespace {

constexpr const char* in_data_json = "a key of MindSpeed-MM's data.json";
constexpr std::int64_t most_pixels = std::int64_t{1} << 31U;

void describe_records(options::Schema<MllmOptions>& s) {
  using O = MllmOptions;
  s.option("messages", &O::messages, "Column of the list of messages.").no_flag(in_data_json);
  s.option("images", &O::images, "Column of image files: a path or a list of paths; null: there are no images.")
      .no_flag(in_data_json);
  s.option("videos", &O::videos, "Column of videos, each the list of its frames as image files; null: none.")
      .no_flag(in_data_json);
  s.option("system", &O::system, "Column of the system message; null: the template's.").no_flag(in_data_json);
  s.option("role_tag", &O::role_tag, "Key of the role in a message.").no_flag(in_data_json);
  s.option("content_tag", &O::content_tag, "Key of the text in a message.").no_flag(in_data_json);
  s.option("user_tag", &O::user_tag, "Role of prompts.").no_flag(in_data_json);
  s.option("assistant_tag", &O::assistant_tag, "Role of answers.").no_flag(in_data_json);
  s.option("observation_tag", &O::observation_tag, "Role of what tools return, in place of a prompt; null: none.")
      .no_flag(in_data_json);
  s.option("function_tag", &O::function_tag, "Role of calls of tools, in place of an answer; null: none.")
      .no_flag(in_data_json);
  s.option("system_tag", &O::system_tag,
           "Role of a system message at the beginning, which replaces the column `system`; null: none.")
      .no_flag(in_data_json);
}

void describe_pictures(options::Schema<MllmOptions>& s) {
  using O = MllmOptions;
  const auto pixels = [&](const char* name, std::int64_t O::*member, const char* doc, std::int64_t least) {
    s.option(name, member, doc).at_least(least).at_most(most_pixels).unit("pixels").no_flag(in_data_json);
  };
  pixels("image_max_pixels", &O::image_max_pixels, "Images of more pixels become smaller before the processor.", 1);
  pixels("image_min_pixels", &O::image_min_pixels, "Images of fewer pixels become larger before the processor.", 0);
  pixels("video_max_pixels", &O::video_max_pixels, "As `image_max_pixels`, for each frame of a video.", 1);
  pixels("video_min_pixels", &O::video_min_pixels, "As `image_min_pixels`, for each frame of a video.", 0);
  s.option("video_maxlen", &O::video_maxlen,
           "Maximum number of frames of a video; of more, so many evenly spaced ones.")
      .at_least(1)
      .at_most(100000)
      .unit("frames")
      .no_flag(in_data_json);
  s.option(
       "skip_unreadable_images", &O::skip_unreadable_images,
       "Drop records with an image that cannot be opened, as MindSpeed-MM 26.0.0 does; false: they are bad samples, "
       "for which `bad_sample_limit` decides.")
      .when_changed(options::Change::order)
      .no_flag("a property of MindSpeed-MM's release");
  s.option("turn_by_exif", &O::turn_by_exif,
           "Turn pictures as the EXIF orientation of their files asks, before the limits of pixels; false: they are "
           "used as stored, as MindSpeed-MM uses them.")
      .no_flag("only Tessera has it");
  s.option("image_backend", &O::image_backend,
           "Processor of Transformers whose numbers are computed: torchvision, its default from 4.57 on, or pil.")
      .no_flag("the release of Transformers decides it");
  const auto size = [&](const char* name, std::int64_t O::*member, const char* doc) {
    s.option(name, member, doc).at_least(1).at_most(1024).no_flag("in preprocessor_config.json, which must agree");
  };
  size("patch_size", &O::patch_size, "Height and width of a patch, in pixels.");
  size("temporal_patch_size", &O::temporal_patch_size, "Frames in a patch; an image is repeated.");
  size("spatial_merge_size", &O::spatial_merge_size, "A token stands for so many by so many patches.");
}

void describe_validation(options::Schema<MllmOptions>& s) {
  using O = MllmOptions;
  s.option("val_dataset", &O::val_dataset, "Files of the validation data, as `dataset`; null: none.")
      .no_flag(in_data_json)
      .must(
          "DAT2", [](const O& o) { return !o.val_dataset || o.val_rate == 0; },
          [](const O& o) { return text("val_dataset and val_rate ", o.val_rate, " both give validation data"); },
          "give one of them", {"val_rate"});
  s.option("val_rate", &O::val_rate,
           "Fraction of the samples of `dataset`, the last ones, that are validation data and not trained.")
      .at_least(0)
      .below(1)
      .when_changed(options::Change::order)
      .no_flag(in_data_json);
  s.option("val_max_samples", &O::val_max_samples,
           "Number of records taken from the beginning of `val_dataset`; null: all.")
      .at_least(1)
      .at_most(options::most_samples)
      .no_flag(in_data_json);
}

}  // namespace

options::Words<ImageBackend> words(ImageBackend) {
  return {{"torchvision", ImageBackend::torchvision}, {"pil", ImageBackend::pil}};
}

void describe(options::Schema<MllmOptions>& s) {
  using O = MllmOptions;
  s.when_changed(options::Change::told);
  s.option("dataset", &O::dataset,
           "Files of records with messages and images, joined by commas: JSON lists, JSON lines or Parquet.")
      .when_changed(options::Change::order)
      .no_flag(in_data_json);
  s.option("media_dir", &O::media_dir,
           "Folder in which image files are looked for first; a path that is not there is used as written.")
      .no_flag(in_data_json);
  s.option("model_name_or_path", &O::model_name_or_path,
           "Folder of a model of Transformers, whose preprocessor_config.json configures the image processor; null: as "
           "that of Qwen2-VL.")
      .no_flag(in_data_json);
  s.option("template", &O::prompt_template, "Template that renders conversations to text: qwen2vl.")
      .no_flag(in_data_json);
  s.option("train_on_prompt", &O::train_on_prompt, "Compute the loss on prompts too.").no_flag(in_data_json);
  s.option("mask_history", &O::mask_history,
           "Compute the loss on the last answer only; where a conversation is cut, its last turns have priority.")
      .no_flag(in_data_json);
  s.option("ignore_pad_token_for_loss", &O::ignore_pad_token_for_loss,
           "Compute no loss on padding; false: each row also learns the padding that makes it as long as its "
           "micro-batch.")
      .no_flag(in_data_json);
  s.option("max_samples", &O::max_samples, "Number of records taken from the beginning of `dataset`; null: all.")
      .at_least(1)
      .at_most(options::most_samples)
      .when_changed(options::Change::order)
      .no_flag(in_data_json);
  s.option("preprocessing_num_workers", &O::preprocessing_num_workers,
           "Number of threads that count the tokens of the records when the data is opened. Affects results with "
           "`packing` only: each of so many contiguous shares of the records is packed alone.")
      .at_least(1)
      .at_most(256)
      .unit("threads")
      .no_flag(in_data_json);
  s.option("packing", &O::packing,
           "Pack several records into each sample, up to `seq_length` - 1 tokens. Positions begin at 0 in each record.")
      .when_changed(options::Change::order)
      .no_flag(in_data_json);
  s.option("neat_packing", &O::neat_packing,
           "With `packing`, each token attends to its own record only; false: to all records before it too.")
      .no_flag(in_data_json);
  s.option("preprocessing_batch_size", &O::preprocessing_batch_size,
           "With `packing`, number of successive records that are packed together.")
      .at_least(1)
      .at_most(options::most_samples)
      .when_changed(options::Change::order)
      .no_flag(in_data_json);
  describe_pictures(s);
  describe_records(s);
  describe_validation(s);
}

images::ProcessorOptions sizes_of_patches(const MllmOptions& options) {
  images::ProcessorOptions made;
  made.patch_size = static_cast<int>(options.patch_size);
  made.temporal_patch_size = static_cast<int>(options.temporal_patch_size);
  made.merge_size = static_cast<int>(options.spatial_merge_size);
  made.backend = options.image_backend == ImageBackend::pil ? images::Backend::pil : images::Backend::torchvision;
  return made;
}

images::ProcessorOptions processor_of(const MllmOptions& options) {
  const auto sizes = sizes_of_patches(options);
  if (!options.model_name_or_path) return sizes;
  const auto file = images::processor_file(*options.model_name_or_path);
  images::ProcessorOptions made;
  try {
    made = images::read_processor_options(files::read_input(file.string(), "image processor"));
  } catch (const ConfigError& error) {
    const std::string words = error.what();
    throw ConfigError(words.find(file.string()) != std::string::npos ? words : text(file.string(), ": ", words));
  }
  const auto must_agree = [&](const char* option, int ours, const char* key, int theirs) {
    if (ours != theirs)
      throw ConfigError(text(file.string(), ": ", key, " is ", theirs, ", but dataset_config.", option, " is ", ours,
                             "; make them agree, as the model has it"));
  };
  must_agree("patch_size", sizes.patch_size, "patch_size", made.patch_size);
  must_agree("temporal_patch_size", sizes.temporal_patch_size, "temporal_patch_size", made.temporal_patch_size);
  must_agree("spatial_merge_size", sizes.merge_size, "merge_size", made.merge_size);
  made.backend = sizes.backend;
  return made;
}

std::string other_limits(const MllmOptions& options, const std::filesystem::path& folder) {
  if (options.model_name_or_path) return "";
  const auto file = images::processor_file(folder);
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown)) return "";
  // Rounding to whole patches makes pictures a little larger than image_max_pixels, by less than a half.
  const auto reached = [&](const images::ProcessorOptions& one) {
    return std::pair(one.min_pixels, std::min(one.max_pixels, options.image_max_pixels * 3 / 2));
  };
  try {
    const auto theirs = images::read_processor_options(files::read_input(file.string(), "image processor"));
    const auto ours = sizes_of_patches(options);
    if (reached(theirs) == reached(ours)) return "";
    return text("the image processor of ", file.string(), " has pictures of ", theirs.min_pixels, " to ",
                theirs.max_pixels, " pixels, the run of ", ours.min_pixels, " to ", ours.max_pixels,
                "; give dataset_config.model_name_or_path: ", folder.string(), " to train with the former");
  } catch (const ConfigError&) {
    return "";  // a file that the run does not use
  }
}

Packing packing_of(const MllmOptions& options, std::int64_t seq_length) {
  if (!options.packing) return {};
  return {.capacity = seq_length - 1,
          .attends_within_record = options.neat_packing,
          .shares = options.preprocessing_num_workers,
          .records_at_once = options.preprocessing_batch_size};
}

RowOptions row_options(const MllmOptions& options, std::int64_t seq_length,
                       const std::optional<images::ProcessorOptions>& processor) {
  const auto& o = options;
  RowOptions made;
  made.template_name = o.prompt_template;
  made.names = {o.messages, o.images,        o.videos,          o.system,       o.role_tag,  o.content_tag,
                o.user_tag, o.assistant_tag, o.observation_tag, o.function_tag, o.system_tag};
  made.media = {o.media_dir,
                {o.image_max_pixels, o.image_min_pixels},
                {o.video_max_pixels, o.video_min_pixels},
                o.turn_by_exif,
                o.video_maxlen,
                processor ? *processor : processor_of(options)};
  made.seq_length = options.packing ? seq_length - 1 : seq_length;
  made.train_on_prompt = o.train_on_prompt;
  made.mask_history = o.mask_history;
  made.loss_on_padding = !o.ignore_pad_token_for_loss;
  return made;
}

std::vector<std::string> files_of_list(const std::string& list) {
  std::vector<std::string> files;
  for (std::size_t at = 0; at <= list.size();) {
    const auto end = std::min(list.find(',', at), list.size());
    auto name = list.substr(at, end - at);
    name.erase(0, std::min(name.find_first_not_of(" \t"), name.size()));
    name.erase(name.find_last_not_of(" \t") + 1);
    if (name.empty())
      throw ConfigError(text("dataset_config.dataset '", list, "' has an empty name; expected files joined by commas"));
    files.push_back(name);
    at = end + 1;
  }
  return files;
}

}  // namespace tessera::multimodal
