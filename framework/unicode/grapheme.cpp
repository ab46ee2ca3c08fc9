#include "framework/unicode/grapheme.h"

#include <cstdint>
#include <vector>

#include "framework/unicode/grapheme_tables.h"
#include "framework/unicode/unicode_code_points.h"

namespace tessera::unicode {
namespace {

// Up to `consonant` in the order of the generated table. `linker` and `incb_extend` are Extend too, and link Indic
// consonants or stand between them.
enum class Class : std::uint8_t {
  any,
  control,
  extend,
  incb_extend,
  linker,
  spacing_mark,
  prepend,
  l,
  v,
  t,
  pictographic,
  consonant,
  carriage_return,
  line_feed,
  zwj,
  regional,
  lv,
  lvt
};

const CodePointTable<Class>& classes() {
  static const CodePointTable<Class> table = [] {
    std::vector<Class> values(end_of_code_points, Class::any);
    TableReader reader(tables::grapheme_classes);
    for (std::size_t at = 0; reader.more();) {
      at += reader.next();
      const auto end = at + reader.next();
      const auto value = static_cast<Class>(reader.next());
      while (at < end) values[at++] = value;
    }
    for (std::size_t code = 0xAC00; code < 0xD7A4; ++code)
      values[code] = (code - 0xAC00) % 28 == 0 ? Class::lv : Class::lvt;
    for (std::size_t code = 0x1F1E6; code < 0x1F200; ++code) values[code] = Class::regional;
    values['\r'] = Class::carriage_return;
    values['\n'] = Class::line_feed;
    values[0x200D] = Class::zwj;
    return CodePointTable<Class>(values);
  }();
  return table;
}

// What the rules that look farther back than one character need to know of a cluster.
struct Seen {
  bool consonant = false, linked = false;  // an Indic consonant, then linkers and extends only; a linker among them
  bool pictograph = false;                 // a pictograph, then extends only
  bool joined = false;                     // the same, and a zero width joiner
  bool lone_regional = false;              // an odd number of regional indicators

  void add(Class next) {
    joined = pictograph && next == Class::zwj;
    const bool extends = next == Class::extend || next == Class::incb_extend || next == Class::linker;
    pictograph = next == Class::pictographic || (pictograph && extends);
    if (next == Class::consonant) {
      consonant = true;
      linked = false;
    } else if (next == Class::linker) {
      linked = consonant;
    } else if (next != Class::incb_extend && next != Class::zwj) {
      consonant = linked = false;
    }
    lone_regional = next == Class::regional && !lone_regional;
  }
};

bool is_break(const Seen& seen, Class before, Class next) {
  const auto ends = [](Class c) { return c == Class::control || c == Class::carriage_return || c == Class::line_feed; };
  if (before == Class::carriage_return && next == Class::line_feed) return false;
  if (ends(before) || ends(next)) return true;
  switch (next) {
    case Class::extend:
    case Class::incb_extend:
    case Class::linker:
    case Class::zwj:
    case Class::spacing_mark:
      return false;
    default:
      break;
  }
  if (before == Class::prepend) return false;
  switch (next) {
    case Class::l:
    case Class::lv:
    case Class::lvt:
      return before != Class::l;
    case Class::v:
      return before != Class::l && before != Class::lv && before != Class::v;
    case Class::t:
      return before != Class::lv && before != Class::v && before != Class::lvt && before != Class::t;
    case Class::consonant:
      return !(seen.consonant && seen.linked);
    case Class::pictographic:
      return !seen.joined;
    case Class::regional:
      return !seen.lone_regional;
    default:
      return true;
  }
}

}  // namespace

std::size_t end_of_grapheme(std::u32string_view codes, std::size_t at) {
  const auto& table = classes();
  Seen seen;
  auto before = table.of(codes[at]);
  seen.add(before);
  for (++at; at < codes.size(); ++at) {
    const auto next = table.of(codes[at]);
    if (is_break(seen, before, next)) break;
    seen.add(next);
    before = next;
  }
  return at;
}

}  // namespace tessera::unicode
