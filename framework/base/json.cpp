#include "framework/base/json.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "framework/base/visible_text.h"

namespace tessera {
namespace {

constexpr std::size_t most_searched = 16;  // members that are compared one by one

std::uint32_t hash_of(std::string_view name) { return static_cast<std::uint32_t>(std::hash<std::string_view>()(name)); }

}  // namespace

/// Members in their order; above a few, also a table from the hash of a name to the place of its member.
struct Json::Object {
  struct Slot {
    std::uint32_t hash = 0, place = 0;  // the place + 1; 0: free
  };
  std::vector<Member> members;
  std::vector<Slot> table;  // a power of two long, at least twice the members; or empty

  const Member* find(std::string_view name) const {
    if (table.empty()) {
      const auto found =
          std::find_if(members.begin(), members.end(), [&](const auto& one) { return one.name == name; });
      return found == members.end() ? nullptr : &*found;
    }
    const auto place = table[slot_of(hash_of(name), name)].place;
    return place == 0 ? nullptr : &members[place - 1];
  }

  Json& member(std::string&& name) {
    if (table.empty()) {
      if (const auto* found = find(name)) return const_cast<Json&>(found->value);
      members.push_back({std::move(name), {}});
      if (members.size() > most_searched) index();
      return members.back().value;
    }
    const auto hash = hash_of(name);
    auto slot = slot_of(hash, name);
    if (const auto place = table[slot].place; place != 0) return members[place - 1].value;
    if (table.size() < 2 * (members.size() + 1)) {
      grow();
      slot = slot_of(hash, name);
    }
    members.push_back({std::move(name), {}});
    table[slot] = {hash, static_cast<std::uint32_t>(members.size())};
    return members.back().value;
  }

  void erase(std::string_view name) {
    const auto* found = find(name);
    if (found == nullptr) return;
    members.erase(members.begin() + (found - members.data()));
    table.clear();
    if (members.size() > most_searched) index();
  }

 private:
  /// The slot that has `name`, or is free for it.
  std::size_t slot_of(std::uint32_t hash, std::string_view name) const {
    auto at = hash & (table.size() - 1);
    while (table[at].place != 0 && (table[at].hash != hash || members[table[at].place - 1].name != name))
      at = (at + 1) & (table.size() - 1);
    return at;
  }

  /// Makes the table of all members.
  void index() {
    table.resize(8 * most_searched);
    while (table.size() < 2 * members.size()) table.resize(2 * table.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto hash = hash_of(members[i].name);
      table[slot_of(hash, members[i].name)] = {hash, static_cast<std::uint32_t>(i + 1)};
    }
  }

  /// Doubles the table; its names differ, so their hashes are enough.
  void grow() {
    const auto smaller = std::exchange(table, std::vector<Slot>(2 * table.size()));
    for (const auto& slot : smaller) {
      if (slot.place == 0) continue;
      auto at = slot.hash & (table.size() - 1);
      while (table[at].place != 0) at = (at + 1) & (table.size() - 1);
      table[at] = slot;
    }
  }
};

Json::Json(std::string value) : type_(Type::string) { is_.string = new std::string(std::move(value)); }
Json::Json(std::string_view value) : Json(std::string(value)) {}
Json::Json(const char* value) : Json(std::string(value)) {}

Json::Json(std::initializer_list<Json> items) {
  const bool named = std::all_of(items.begin(), items.end(), [](const Json& item) {
    return item.is_array() && item.size() == 2 && item.at(0).is_string();
  });
  if (!named) {
    *this = array(items);
    return;
  }
  become(Type::object);
  for (const auto& item : items) put(item[0].string(), item[1]);
}

Json Json::array(std::initializer_list<Json> items) {
  Json all(Type::array);
  all.is_.array->assign(items.begin(), items.end());
  return all;
}

Json::Json(const Json& other) : type_(other.type_), is_(other.is_) {
  if (type_ == Type::string) is_.string = new std::string(*other.is_.string);
  if (type_ == Type::array) is_.array = new std::vector<Json>(*other.is_.array);
  if (type_ == Type::object) is_.object = new Object(*other.is_.object);
}

void Json::become(Type type) {
  if (type == Type::array) is_.array = new std::vector<Json>();
  if (type == Type::object) is_.object = new Object();
  type_ = type;
}

void Json::release() {
  if (type_ == Type::string) delete is_.string;
  if (type_ == Type::array) delete is_.array;
  if (type_ == Type::object) delete is_.object;
}

const char* Json::type_name() const {
  switch (type_) {
    case Type::null:
      return "null";
    case Type::boolean:
      return "boolean";
    case Type::string:
      return "string";
    case Type::array:
      return "array";
    case Type::object:
      return "object";
    case Type::discarded:
      return "discarded";
    default:
      return "number";
  }
}

void Json::refuse(std::string_view expected) const {
  throw JsonError(
      text(is_discarded() ? "text that is not JSON" : shortened(dump()), " stands where ", expected, " was expected"));
}

void Json::has_no_member(std::string_view name) const { throw JsonError(text("'", name, "' is missing")); }

bool Json::boolean() const {
  if (!is_boolean()) refuse("true or false");
  return is_.boolean;
}

double Json::number() const {
  if (type_ == Type::integer) return static_cast<double>(is_.integer);
  if (type_ == Type::unsigned_integer) return static_cast<double>(is_.unsigned_integer);
  if (type_ != Type::real) refuse("a number");
  return is_.real;
}

const std::string& Json::string() const {
  if (!is_string()) refuse("a text");
  return *is_.string;
}

std::int64_t Json::whole_between(std::int64_t least, std::int64_t most) const {
  const bool fits = (type_ == Type::integer && is_.integer >= least && is_.integer <= most) ||
                    (type_ == Type::unsigned_integer && is_.unsigned_integer <= static_cast<std::uint64_t>(most));
  if (!fits) refuse(text("a whole number from ", least, " to ", most));
  return is_.integer;  // both have the same bits here
}

std::uint64_t Json::whole_up_to(std::uint64_t most) const {
  const bool fits = (type_ == Type::integer && is_.integer >= 0) || type_ == Type::unsigned_integer;
  if (!fits || is_.unsigned_integer > most) refuse(text("a whole number from 0 to ", most));
  return is_.unsigned_integer;
}

std::size_t Json::size() const {
  if (is_null()) return 0;
  return is_array() ? is_.array->size() : is_object() ? is_.object->members.size() : 1;
}

const Json* Json::begin() const {
  if (is_null()) return nullptr;
  if (!is_array()) refuse("a list");
  return is_.array->data();
}

const Json& Json::item(std::size_t index) const {
  if (!is_array()) refuse("a list");
  if (index >= size()) throw JsonError(text("a list has ", size(), " items where more than ", index, " were expected"));
  return (*is_.array)[index];
}

Json& Json::push_back(Json item) {
  if (is_null()) become(Type::array);
  if (!is_array()) refuse("a list");
  is_.array->push_back(std::move(item));
  return is_.array->back();
}

Json::Members Json::items() const {
  if (is_null()) return {nullptr, nullptr};
  if (!is_object()) refuse("an object");
  const auto& all = is_.object->members;
  return {all.data(), all.data() + all.size()};
}

const Json* Json::find(std::string_view name) const {
  const auto* found = is_object() ? is_.object->find(name) : nullptr;
  return found == nullptr ? nullptr : &found->value;
}

const Json* Json::member(std::string_view name) const {
  if (!is_object()) refuse("an object");
  return find(name);
}

const Json& Json::at(std::string_view name) const {
  const auto* found = member(name);
  if (found == nullptr) has_no_member(name);
  return *found;
}

Json& Json::member_named(std::string name) {
  if (is_null()) become(Type::object);
  if (!is_object()) refuse("an object");
  return is_.object->member(std::move(name));
}

void Json::erase(std::string_view name) {
  if (is_object()) is_.object->erase(name);
}

void Json::update(const Json& other) {
  for (const auto& [name, value] : other.items()) put(name, value);
}

Json Json::sorted() const {
  if (is_array()) {
    auto all = array();
    for (const auto& item : *this) all.push_back(item.sorted());
    return all;
  }
  if (!is_object()) return *this;
  std::vector<const Member*> members;
  for (const auto& one : items()) members.push_back(&one);
  std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  auto all = object();
  for (const auto* one : members) all.put(one->name, one->value.sorted());
  return all;
}

namespace {

bool equal_numbers(const Json& one, const Json& other) {
  if (one.is_number_float() || other.is_number_float()) return one.number() == other.number();
  const auto negative = [](const Json& json) { return !json.is_number_unsigned() && json.number() < 0; };
  if (negative(one) || negative(other))
    return negative(one) && negative(other) && one.get<std::int64_t>() == other.get<std::int64_t>();
  return one.get<std::uint64_t>() == other.get<std::uint64_t>();
}

bool equal_objects(const Json& one, const Json& other) {
  const auto all = one.items();
  return one.size() == other.size() && std::all_of(all.begin(), all.end(), [&](const Json::Member& member) {
           const auto* same = other.find(member.name);
           return same != nullptr && *same == member.value;
         });
}

}  // namespace

bool operator==(const Json& one, const Json& other) {
  if (one.is_number() && other.is_number()) return equal_numbers(one, other);
  if (one.type() != other.type() || one.is_discarded()) return false;
  if (one.is_object()) return equal_objects(one, other);
  if (one.is_array()) return std::equal(one.begin(), one.end(), other.begin(), other.end());
  if (one.is_string()) return one.string() == other.string();
  return one.is_null() || one.boolean() == other.boolean();
}

}  // namespace tessera
