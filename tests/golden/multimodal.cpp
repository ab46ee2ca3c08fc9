#include "tests/golden/multimodal.h"

#include <algorithm>
#include <fstream>

#include "framework/base/files.h"
#include "framework/base/sha256.h"
#include "framework/data/dataset.h"
#include "framework/data/visual_positions.h"
#include "framework/images/limits.h"
#include "framework/images/processor.h"
#include "framework/instructions/cut_lengths.h"
#include "framework/multimodal/llava.h"
#include "framework/multimodal/packing.h"

namespace tessera {
namespace golden {
namespace {

namespace fs = std::filesystem;

/// The pictures that a case has, and its input; the script runs in the folder that has data/.
multimodal::LlavaRequest planted(const fs::path& folder, const Json& one) {
  const auto pictures = folder / "data/COCO2017/train2017";
  fs::create_directories(pictures);
  for (const std::string name : one["exists"]) {
    if (name.ends_with('/')) {
      fs::create_directories(pictures / name);
      continue;
    }
    fs::create_directories((pictures / name).parent_path());
    std::ofstream(pictures / name) << "";
  }
  std::ofstream(folder / "data/llava_instruct_150k.json") << one["input"].get<std::string>();
  return {};
}

std::string judge_conversion(const fs::path& folder, const Json& one) {
  const auto request = planted(folder, one);
  const InFolder here(folder);
  const auto convert = [&]() -> std::string {
    try {
      multimodal::convert_llava(request);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  const auto refused = convert();
  if (one["exit"] != 0) {
    if (refused.empty()) return text("is converted; recorded is ", one["error"]);
    return fs::exists(request.output) ? "a file is left behind" : "";
  }
  if (!refused.empty()) return refused;
  const auto made = read_file(request.output);
  if (made != one["output"].get<std::string>() || sha256(made) != one["sha256"].get<std::string>())
    return text("the output is ", made.substr(0, 300));
  return convert().empty() ? "a second run replaces the file" : "";
}

/// The grids of a row: as many as its placeholders need.
std::vector<data::PatchGrid> take_grids(const std::vector<std::int32_t>& ids, const data::VisualTokens& visual,
                                        const Json& all, std::size_t& next) {
  auto left = std::count_if(ids.begin(), ids.end(), [&](auto id) { return visual.stands_for_patches(id); });
  std::vector<data::PatchGrid> grids;
  while (left > 0) {
    const auto grid = all.at(next++).get<std::vector<std::int32_t>>();
    grids.push_back({grid.at(0), grid.at(1), grid.at(2)});
    left -= grids.back().tokens(visual.merge);
  }
  return grids;
}

std::string judge_position_case(const Json& ids, const Json& one) {
  const data::VisualTokens visual{ids["image"], ids["video"], 2};
  std::size_t next = 0;
  for (std::size_t row = 0; row < one["input_ids"].size(); ++row) {
    const auto tokens = one["input_ids"][row].get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> mask;
    if (!one["attention_mask"].is_null()) mask = one["attention_mask"][row].get<std::vector<std::int32_t>>();
    const auto grids = take_grids(tokens, visual, one["grid_thw"], next);
    std::vector<std::int32_t> positions(3 * tokens.size());
    const auto delta =
        data::write_visual_positions({tokens, mask, grids, one["grid_thw"].is_null()}, visual, positions);
    std::vector<std::int32_t> recorded;
    for (std::size_t axis = 0; axis < 3; ++axis)
      for (const auto& value : one["position_ids"][axis][row]) recorded.push_back(value);
    if (positions != recorded) return text("row ", row, ": the positions are ", Json(positions).dump());
    if (delta != one["rope_deltas"][row]) return text("row ", row, ": the delta is ", delta);
  }
  return "";
}

/// Each row of a table: `made` gives the columns behind the first `inputs`, or nothing where it refuses.
std::string judge_table(const Json& rows, std::size_t inputs,
                        const std::function<std::vector<std::int64_t>(const std::vector<std::int64_t>&)>& made) {
  for (const auto& row : rows) {
    std::vector<std::int64_t> in, out;
    bool is_error = false;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].is_string())
        is_error = true;
      else
        (i < inputs ? in : out).push_back(row[i]);
    }
    try {
      const auto ours = made(in);
      if (is_error || ours != out) return text(row.dump(), ": ours is ", Json(ours).dump());
    } catch (const ConfigError& error) {
      if (!is_error) return text(row.dump(), ": ", error.what());
    }
  }
  return "";
}

std::string judge_order(const Json& one) {
  options::Value recipe;
  for (const auto& [option, value] : {std::pair<std::string, std::string>("dataloader_type", "cyclic"),
                                      {"shuffle_epochs", one["shuffle"].dump()},
                                      {"data_sharding", one["data_sharding"].dump()}})
    recipe.set("dataset_config." + option, options::Value::of(value, {"golden", 0, "", 1}));
  options::Report report;
  options::Group group(recipe, "dataset_config", report);
  const std::int64_t total = one["total"], micro_batch = one["micro_batch_size"], ranks = one["data_parallel"],
                     consumed = one["consumed"];
  const auto sampler = data::samplers().read(group).make({total, micro_batch, ranks});
  // There, ranks may get different numbers of batches in an epoch if the samples do not divide: compared to its end.
  const auto step = micro_batch * ranks, epoch = total / step * step;
  auto batches = static_cast<std::int64_t>(one["batches"][0].size());
  for (const auto& list : one["batches"]) batches = std::min(batches, static_cast<std::int64_t>(list.size()));
  if (total % step != 0) batches = std::min(batches, (epoch - consumed % epoch) / step);
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::int64_t b = 0; b < batches; ++b)
      for (std::int64_t i = 0; i < micro_batch; ++i) {
        const auto ours = sampler->index(consumed + (b * ranks + rank) * micro_batch + i);
        const auto& recorded =
            one["batches"][static_cast<std::size_t>(rank)][static_cast<std::size_t>(b)][static_cast<std::size_t>(i)];
        if (ours != recorded) return text("rank ", rank, " batch ", b, ": sample ", ours, ", recorded is ", recorded);
      }
  return "";
}

}  // namespace

void judge_llava(DataFolder& data) {
  if (!data.has("llava.json")) return;
  const auto recorded = data.json("llava.json");
  for (const auto& one : recorded["cases"]) {
    const auto name = one["name"].get<std::string>();
    data.run("llava/" + name, [&] { return judge_conversion(data.scratch() / ("llava_" + name), one); });
  }
}

void judge_positions(DataFolder& data) {
  if (!data.has("positions.json")) return;
  const auto all = data.json("positions.json");
  for (std::size_t i = 0; i < all["cases"].size(); ++i)
    data.run(text("positions/", i, "_", all["cases"][i]["kind"].get<std::string>()), [&]() -> std::string {
      if (all["cases"][i].contains("raises")) throw NotSupported{"positions of a batch that the original refuses"};
      return judge_position_case(all["ids"], all["cases"][i]);
    });
}

/// Lengths, the capacity, and the lengths of each packed row.
std::string judge_packing(const Json& recorded) {
  const auto lengths = recorded[0].get<std::vector<std::int64_t>>();
  Json ours = Json::array();
  for (const auto& row : multimodal::packed_rows(lengths, recorded[1])) {
    ours.push_back(Json::array());
    for (const auto member : row) ours.back().push_back(lengths[member]);
  }
  return ours == recorded[2] ? "" : text("the rows are ", ours.dump());
}

void judge_tables(DataFolder& data) {
  if (!data.has("tables.json")) return;
  const auto all = data.json("tables.json");
  using Row = std::vector<std::int64_t>;
  data.run("tables/truncation", [&] {
    return judge_table(all["truncation"]["rows"], 3, [](const Row& in) {
      const auto kept = instructions::cut_lengths(in[0], in[1], in[2]);
      return Row{kept.prompt, kept.answer};
    });
  });
  data.run("tables/limits", [&] {
    return judge_table(all["limits"]["rows"], 4, [](const Row& in) {
      const auto size = images::limited_size({in[0], in[1]}, {in[2], in[3]});
      const auto then = images::smart_resize(size, 28, 3136, 12845056);
      return Row{size.width, size.height, then.height, then.width};
    });
  });
  data.run("tables/smart_resize", [&] {
    return judge_table(all["smart_resize"]["rows"], 4, [](const Row& in) {
      const auto size = images::smart_resize({in[1], in[0]}, 28, in[2], in[3]);
      return Row{size.height, size.width};
    });
  });
  if (all.contains("packing"))
    for (std::size_t i = 0; i < all["packing"]["rows"].size(); ++i)
      data.run(text("tables/packing_", i), [&] { return judge_packing(all["packing"]["rows"][i]); });
  if (all.contains("video_sampling"))
    data.run("tables/video_sampling", [&]() -> std::string { throw NotSupported{"files of videos"}; });
}

}  // namespace golden

bool is_multimodal_text(const std::filesystem::path& folder) {
  const auto has = [&](const char* name) { return std::filesystem::exists(folder / name); };
  return has("llava.json") || has("encode.json") || has("positions.json") || has("collate.json");
}

std::vector<CaseResult> run_multimodal_text_cases(const std::filesystem::path& folder) {
  golden::DataFolder data(folder);
  golden::judge_llava(data);
  golden::judge_positions(data);
  golden::judge_tables(data);
  golden::judge_rows(data);
  golden::judge_batches(data);
  return std::move(data.results);
}

bool is_multimodal_order(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "sampler.jsonl");
}

std::vector<CaseResult> run_multimodal_order_cases(const std::filesystem::path& folder) {
  golden::DataFolder data(folder);
  const auto lines = data.lines("sampler.jsonl");
  for (std::size_t i = 0; i < lines.size(); ++i)
    data.run(text("sampler/", i), [&] { return golden::judge_order(lines[i]); });
  return std::move(data.results);
}

}  // namespace tessera
