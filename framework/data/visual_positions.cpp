#include "framework/data/visual_positions.h"

#include <algorithm>
#include <array>

#include "framework/base/error.h"

namespace tessera::data {
namespace {

using AxisPositions = std::array<std::int32_t, 3>;

constexpr std::int32_t position_of_padding = 1;

// The placeholders of one image or video, while a row is read.
struct OpenItem {
  const PatchGrid* grid = nullptr;
  std::int32_t base = 0;
  std::int64_t square = 0;  // read so far: along the columns, then the rows, then the time steps

  AxisPositions next(std::int64_t merge) {
    const auto rows = grid->h / merge, columns = grid->w / merge;
    const auto step = square / (rows * columns), in_frame = square % (rows * columns);
    ++square;
    return {base + static_cast<std::int32_t>(static_cast<double>(step) * grid->time_step),
            base + static_cast<std::int32_t>(in_frame / columns), base + static_cast<std::int32_t>(in_frame % columns)};
  }
  bool whole(std::int64_t merge) const { return grid == nullptr || square == grid->tokens(merge); }
};

class RowPositions {
 public:
  RowPositions(const VisualRow& row, const VisualTokens& visual) : row_(row), visual_(visual) {}

  AxisPositions of(std::size_t at) {
    const bool stands = visual_.stands_for_patches(row_.tokens[at]);
    if (!item_.whole(visual_.merge)) {
      if (!stands) refuse(at, "ends");
      return known(item_.next(visual_.merge));
    }
    if (!stands) return known({following_, following_, following_});
    if (items_ == row_.grids.size()) refuse(at, "has no grid");
    item_ = {&row_.grids[items_++], following_, 0};
    if (item_.grid->tokens(visual_.merge) < 1) refuse(at, "has an empty grid");
    return known(item_.next(visual_.merge));
  }
  void end() const {
    if (!item_.whole(visual_.merge) || items_ != row_.grids.size()) refuse(row_.tokens.size(), "is missing or cut");
  }
  std::int32_t following() const { return following_; }

 private:
  AxisPositions known(const AxisPositions& position) {
    largest_ = std::max(largest_, *std::max_element(position.begin(), position.end()));
    if (item_.whole(visual_.merge)) following_ = largest_ + 1;
    return position;
  }
  [[noreturn]] void refuse(std::size_t at, const char* what) const {
    throw ShapeError(text("positions of images: at token ", at, " of ", row_.tokens.size(), " image or video ", items_,
                          " ", what, "; the row has ", row_.grids.size(), " grids, expected t x h x w / ",
                          visual_.merge * visual_.merge, " placeholders in a row for each of them"));
  }

  const VisualRow& row_;
  const VisualTokens& visual_;
  OpenItem item_;
  std::size_t items_ = 0;
  std::int32_t largest_ = -1, following_ = 0;  // following_: of the next token of text
};

}  // namespace

std::int64_t write_visual_positions(const VisualRow& row, const VisualTokens& visual,
                                    std::span<std::int32_t> positions) {
  const auto tokens = row.tokens.size();
  must(positions.size() == 3 * tokens, "positions have three axes");
  must(row.mask.empty() || row.mask.size() == tokens, "each token of a row has an element of its mask");
  RowPositions of_row(row, visual);
  bool is_padded = false;
  for (std::size_t at = 0; at < tokens; ++at) {
    const bool padding = !row.mask.empty() && row.mask[at] == 0;
    is_padded = is_padded || padding;
    const auto position =
        padding ? AxisPositions{position_of_padding, position_of_padding, position_of_padding} : of_row.of(at);
    for (std::size_t axis = 0; axis < 3; ++axis) positions[axis * tokens + at] = position[axis];
  }
  of_row.end();
  const auto counted = is_padded && row.in_batch_of_text ? position_of_padding + 1 : 0;
  return std::max(of_row.following(), counted) - static_cast<std::int64_t>(tokens);
}

}  // namespace tessera::data
