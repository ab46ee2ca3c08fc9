#include "framework/interop/shell/matcher.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace tessera::shell {
namespace {

using Places = std::vector<bool>;

class Matcher {
 public:
  Matcher(const std::string& words, const Spend& spend) : words_(words), spend_(spend) {}

  /// Where matches may end that begin at one of `from`.
  Places ends(const Piece& piece, const Places& from) {
    spend_(1 + static_cast<long>(words_.size() / 64));
    switch (piece.kind) {
      case Piece::Kind::set:
        return one(piece, from);
      case Piece::Kind::sequence: {
        auto now = from;
        for (const auto& part : piece.inside) now = ends(part, now);
        return now;
      }
      case Piece::Kind::choice: {
        Places all(words_.size() + 1);
        for (const auto& part : piece.inside) add(all, ends(part, from));
        return all;
      }
      case Piece::Kind::repeat:
        return repeated(piece, from);
      case Piece::Kind::except:
        return others(piece, from);
      case Piece::Kind::begin:
      case Piece::Kind::end:
        break;
    }
    Places out(words_.size() + 1);
    const auto at = piece.kind == Piece::Kind::begin ? 0 : words_.size();
    out[at] = from[at];
    return out;
  }

 private:
  static bool add(Places& to, const Places& more) {
    bool grew = false;
    for (std::size_t i = 0; i < to.size(); ++i)
      if (more[i] && !to[i]) to[i] = grew = true;
    return grew;
  }

  Places one(const Piece& piece, const Places& from) const {
    Places out(words_.size() + 1);
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (from[i] && piece.set[static_cast<unsigned char>(words_[i])]) out[i + 1] = true;
    return out;
  }

  Places repeated(const Piece& piece, const Places& from) {
    const auto& inside = piece.inside.at(0);
    auto now = from;
    for (int i = 0; i < piece.least; ++i) now = ends(inside, now);
    if (piece.most < 0 && inside.kind == Piece::Kind::set) return run_of(inside, now);
    auto all = now;
    for (int i = piece.least; i != piece.most; ++i) {
      now = ends(inside, now);
      if (!add(all, now)) break;
    }
    return all;
  }

  /// Any number of bytes of a set, in one pass.
  Places run_of(const Piece& inside, Places all) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (all[i] && inside.set[static_cast<unsigned char>(words_[i])]) all[i + 1] = true;
    return all;
  }

  /// !(...): all that does not match.
  Places others(const Piece& piece, const Places& from) {
    Places all(words_.size() + 1);
    for (std::size_t i = 0; i <= words_.size(); ++i) {
      if (!from[i]) continue;
      Places here(words_.size() + 1);
      here[i] = true;
      const auto taken = ends(piece.inside.at(0), here);
      for (auto k = i; k <= words_.size(); ++k) all[k] = all[k] || !taken[k];
    }
    return all;
  }

  const std::string& words_;
  const Spend& spend_;
};

/// Tries the matches one after another: each repetition first as often as it can.
class Groups {
 public:
  Groups(const std::string& words, std::size_t to, int groups, const Spend& spend)
      : words_(words), to_(to), now_(static_cast<std::size_t>(groups)), spend_(spend) {}

  using Then = std::function<bool(std::size_t)>;

  /// The first match; with `all`, also whether there is a second one with other groups.
  bool run(const Piece& piece, std::size_t from, bool all) {
    go(piece, from, [&](std::size_t end) {
      if (end != to_) return false;
      found_.insert(now_);
      if (first_.empty()) first_ = {now_};
      return !all || found_.size() > 1;
    });
    return !first_.empty() && found_.size() == 1;
  }
  std::vector<Group> first() const { return first_.at(0); }

 private:
  bool go(const Piece& piece, std::size_t at, const Then& then) {
    spend_(1);
    if (piece.group == 0) return inside(piece, at, then);
    auto& group = now_[static_cast<std::size_t>(piece.group - 1)];
    const auto before = group;
    const bool out = inside(piece, at, [&, at](std::size_t end) {
      const auto outer = group;
      group = {at, end};
      const bool done = then(end);
      group = outer;
      return done;
    });
    group = before;
    return out;
  }

  bool inside(const Piece& piece, std::size_t at, const Then& then) {
    switch (piece.kind) {
      case Piece::Kind::set:
        return at < to_ && piece.set[static_cast<unsigned char>(words_[at])] && then(at + 1);
      case Piece::Kind::sequence:
        return sequence(piece, 0, at, then);
      case Piece::Kind::choice:
        return std::any_of(piece.inside.begin(), piece.inside.end(),
                           [&](const auto& part) { return go(part, at, then); });
      case Piece::Kind::repeat:
        return repeat(piece, 0, at, then);
      case Piece::Kind::begin:
        return at == 0 && then(at);
      case Piece::Kind::end:
        return at == words_.size() && then(at);
      case Piece::Kind::except:
        break;
    }
    return false;
  }

  bool sequence(const Piece& piece, std::size_t part, std::size_t at, const Then& then) {
    if (part == piece.inside.size()) return then(at);
    return go(piece.inside[part], at, [&, part](std::size_t end) { return sequence(piece, part + 1, end, then); });
  }

  bool repeat(const Piece& piece, int count, std::size_t at, const Then& then) {
    constexpr int deepest = 2000;  // each round takes stack
    if (count > deepest) spend_(1L << 40);
    const bool more = piece.most < 0 || count < piece.most;
    if (more && go(piece.inside[0], at, [&, count, at](std::size_t end) {
          if (end == at && count >= piece.least) return false;
          return repeat(piece, count + 1, end, then);
        }))
      return true;
    return count >= piece.least && then(at);
  }

  const std::string& words_;
  const std::size_t to_;
  std::vector<Group> now_;
  const Spend& spend_;
  std::set<std::vector<Group>> found_;
  std::vector<std::vector<Group>> first_;
};

/// Whether the longest choice of each part, from the left, is what POSIX prescribes.
bool is_plain(const Piece& piece) {
  if (piece.kind == Piece::Kind::choice) return false;
  if (piece.kind == Piece::Kind::repeat && piece.inside[0].kind != Piece::Kind::set) return false;
  return std::all_of(piece.inside.begin(), piece.inside.end(), is_plain);
}

}  // namespace

std::vector<bool> match_ends(const Piece& piece, const std::string& words, std::size_t from, const Spend& spend) {
  Places begin(words.size() + 1);
  begin[from] = true;
  return Matcher(words, spend).ends(piece, begin);
}

std::optional<std::vector<Group>> groups_of(const Piece& piece, const std::string& words, std::size_t from,
                                            std::size_t to, int groups, const Spend& spend) {
  Groups search(words, to, groups, spend);
  if (!search.run(piece, from, !is_plain(piece))) return std::nullopt;
  return search.first();
}

std::optional<std::bitset<256>> read_set(const std::string& words, std::size_t& at, bool pattern) {
  auto i = at + 1;
  std::bitset<256> set;
  const bool negated = i < words.size() && (words[i] == '^' || (pattern && words[i] == '!'));
  if (negated) ++i;
  const auto byte = [](char c) { return static_cast<unsigned char>(c); };
  for (const auto first = i; i < words.size(); ++i) {
    if (words[i] == ']' && i > first) {
      at = i + 1;
      return negated ? ~set : set;
    }
    if (words.compare(i, 2, "[:") == 0) {
      if (const auto end = words.find(":]", i + 2); end != std::string::npos) {
        const auto name = words.substr(i + 2, end - i - 2);
        static const std::vector<std::pair<std::string, int (*)(int)>> classes = {
            {"alpha", std::isalpha}, {"digit", std::isdigit}, {"alnum", std::isalnum},   {"upper", std::isupper},
            {"lower", std::islower}, {"space", std::isspace}, {"blank", std::isblank},   {"punct", std::ispunct},
            {"print", std::isprint}, {"graph", std::isgraph}, {"xdigit", std::isxdigit}, {"cntrl", std::iscntrl}};
        for (const auto& [known, holds] : classes)
          for (int c = 0; c < 128 && known == name; ++c)
            if (holds(c) != 0) set.set(static_cast<std::size_t>(c));
        if (name == "word")
          for (int c = 0; c < 128; ++c)
            if (std::isalnum(c) != 0 || c == '_') set.set(static_cast<std::size_t>(c));
        i = end + 1;
        continue;
      }
    }
    if (pattern && words[i] == '\\' && i + 1 < words.size()) ++i;
    if (i + 2 < words.size() && words[i + 1] == '-' && words[i + 2] != ']') {
      auto last = i + 2;
      if (pattern && words[last] == '\\' && last + 1 < words.size()) ++last;
      for (int c = byte(words[i]); c <= byte(words[last]); ++c) set.set(static_cast<std::size_t>(c));
      i = last;
    } else {
      set.set(byte(words[i]));
    }
  }
  return std::nullopt;
}

Piece one_of(const std::bitset<256>& set, bool ignore_case) {
  Piece out;
  out.kind = Piece::Kind::set;
  out.set = set;
  for (int c = 'a'; c <= 'z' && ignore_case; ++c) {
    const auto lower = static_cast<std::size_t>(c), upper = static_cast<std::size_t>(std::toupper(c));
    out.set[lower] = out.set[upper] = set[lower] || set[upper];
  }
  return out;
}

}  // namespace tessera::shell
