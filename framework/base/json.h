#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/error.h"

namespace tessera {

/// A text is not JSON, or a value is not what its reader expected. The message names neither file nor use: whoever
/// knows them catches it.
class JsonError : public Error {
  using Error::Error;
};

class Json;

/// A type whose objects are copied into a list (JSON: array) or, where its items are pairs that begin with a text, a
/// map (JSON: object).
template <class T>
concept JsonRange = !std::is_convertible_v<T, std::string_view> && !std::is_convertible_v<T, std::string> &&
                    !std::is_same_v<T, Json> && requires(const T& range) {
  range.begin();
  range.end();
  typename T::value_type;
};

/// A JSON value. Members of an object keep the order in which they came; looking one up takes constant time also in
/// large objects. Whole numbers of 64 bits are exact; longer ones are floating-point numbers. Texts are UTF-8.
/// Copies are deep. Readers throw JsonError if the value has another type.
class Json {
 public:
  enum class Type : std::uint8_t {
    null,
    boolean,
    integer,           // int64_t
    unsigned_integer,  // uint64_t: whole numbers of 0 or more that come from a text, or from an unsigned type
    real,
    string,
    array,
    object,
    discarded  // a text that is no JSON
  };
  struct Member;
  /// The members of an object: for (const auto& [name, value] : json.items()).
  struct Members {
    const Member *first, *last;
    const Member* begin() const { return first; }
    const Member* end() const { return last; }
  };

  Json() = default;
  Json(std::nullptr_t) {}
  template <class T>
  requires std::is_same_v<T, bool> Json(T value) : type_(Type::boolean) { is_.boolean = value; }
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Json(T value)
      : type_(std::is_signed_v<T> ? Type::integer : Type::unsigned_integer) {
    if constexpr (std::is_signed_v<T>)
      is_.integer = value;
    else
      is_.unsigned_integer = value;
  }
  template <class T>
  requires std::is_floating_point_v<T> Json(T value) : type_(Type::real) { is_.real = static_cast<double>(value); }
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  template <class A, class B>
  Json(const std::pair<A, B>& both) : Json(array({Json(both.first), Json(both.second)})) {}
  template <JsonRange Range>
  Json(const Range& range) {
    if constexpr (requires(typename Range::value_type item) { std::string_view(item.first); }) {
      become(Type::object);
      for (const auto& [name, value] : range) put(name, Json(value));
    } else {
      become(Type::array);
      for (const auto& item : range) push_back(Json(typename Range::value_type(item)));
    }
  }
  /// {{"name", value}, ...} is an object, any other list an array. What could be either is written with array().
  Json(std::initializer_list<Json> items);
  Json(const Json& other);
  Json(Json&& other) noexcept { swap(other); }
  Json& operator=(Json other) noexcept {
    swap(other);
    return *this;
  }
  ~Json() {
    if (type_ >= Type::string) release();
  }
  static Json array(std::initializer_list<Json> items = {});
  static Json object() { return Json(Type::object); }
  /// What parse_json makes of a text that is no JSON.
  static Json discarded() { return Json(Type::discarded); }

  Type type() const { return type_; }
  const char* type_name() const;  ///< "null", "boolean", "number", "string", "array", "object" or "discarded"
  bool is_null() const { return type_ == Type::null; }
  bool is_boolean() const { return type_ == Type::boolean; }
  bool is_number_unsigned() const { return type_ == Type::unsigned_integer; }
  bool is_number_integer() const { return type_ == Type::integer || type_ == Type::unsigned_integer; }
  bool is_number_float() const { return type_ == Type::real; }
  bool is_number() const { return is_number_integer() || is_number_float(); }
  bool is_string() const { return type_ == Type::string; }
  bool is_array() const { return type_ == Type::array; }
  bool is_object() const { return type_ == Type::object; }
  bool is_structured() const { return is_array() || is_object(); }
  bool is_discarded() const { return type_ == Type::discarded; }

  bool boolean() const;
  double number() const;
  const std::string& string() const;
  /// The value as `T`: bool, a number, a string, a list, a map from names, or a pair. A whole number must be within
  /// the range of T; a fraction is none.
  template <class T>
  T get() const;
  template <class T>
  void get_to(T& into) const {
    into = get<T>();
  }

  std::size_t size() const;  ///< of a list or an object; 0 for null, 1 for others
  bool empty() const { return size() == 0; }

  /// The items of a list; none of null.
  const Json* begin() const;
  const Json* end() const { return begin() + (is_array() ? size() : 0); }
  Json* begin() { return const_cast<Json*>(std::as_const(*this).begin()); }
  Json* end() { return const_cast<Json*>(std::as_const(*this).end()); }
  template <class T>
  requires std::is_integral_v<T>
  const Json& at(T index) const { return item(static_cast<std::size_t>(index)); }
  template <class T>
  requires std::is_integral_v<T>
  const Json& operator[](T index) const { return at(index); }
  template <class T>
  requires std::is_integral_v<T> Json& operator[](T index) { return const_cast<Json&>(at(index)); }
  const Json& back() const { return at(size() - 1); }
  Json& back() { return (*this)[size() - 1]; }
  /// Appends to a list; null becomes one. Returns the new item.
  Json& push_back(Json item);

  /// The members of an object; none of null.
  Members items() const;
  /// A member of an object; null pointer if there is none, or the value is no object.
  const Json* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Json& at(std::string_view name) const;
  const Json& at(const char* name) const { return at(std::string_view(name)); }
  const Json& operator[](std::string_view name) const { return at(name); }
  const Json& operator[](const char* name) const { return at(std::string_view(name)); }
  /// The member of that name, null if there was none; a value of null becomes an object.
  Json& member_named(std::string name);
  Json& operator[](std::string_view name) { return member_named(std::string(name)); }
  Json& operator[](const char* name) { return (*this)[std::string_view(name)]; }
  void put(std::string_view name, Json value) { (*this)[name] = std::move(value); }
  /// The member `name` of an object as a `T`; `otherwise` if it has none.
  template <class T>
  T value(std::string_view name, const T& otherwise) const {
    const auto* found = member(name);
    return found ? found->get<T>() : otherwise;
  }
  std::string value(std::string_view name, const char* otherwise) const { return value(name, std::string(otherwise)); }
  void erase(std::string_view name);
  /// Puts in all members of the object `other`.
  void update(const Json& other);
  /// A copy with the members of all objects in the order of the bytes of their names.
  Json sorted() const;

  /// The value as text, in one line without blanks, or each item on its own line, `indent` blanks deeper than what it
  /// is in. A part of a text that is not UTF-8 is written as U+FFFD; a number that is not finite as null; other
  /// floating-point numbers with the fewest digits that are read back as the same.
  std::string dump(int indent = -1) const;

  /// Numbers are equal by value, whatever their types; objects whatever the order of their members.
  friend bool operator==(const Json& one, const Json& other);
  void swap(Json& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(is_, other.is_);
  }

 private:
  struct Object;
  union Content {
    std::uint64_t unsigned_integer = 0;
    bool boolean;
    std::int64_t integer;
    double real;
    std::string* string;
    std::vector<Json>* array;
    Object* object;
  };

  explicit Json(Type type) { become(type); }
  void become(Type type);
  void release();
  const Json& item(std::size_t index) const;
  const Json* member(std::string_view name) const;
  std::int64_t whole_between(std::int64_t least, std::int64_t most) const;
  std::uint64_t whole_up_to(std::uint64_t most) const;
  [[noreturn]] void refuse(std::string_view expected) const;
  [[noreturn]] void has_no_member(std::string_view name) const;

  Type type_ = Type::null;
  Content is_ = {};
};

struct Json::Member {
  std::string name;
  Json value;
};

/// Parses the JSON text `words`, which may begin with a byte order mark. Throws JsonError, naming line and column, for
/// text that is not JSON (RFC 8259, UTF-8), numbers beyond a double, and more than 200 levels. Of equal names in an
/// object the last one counts, in the place of the first.
Json read_json(std::string_view words);
/// The same without an error: text that is not JSON becomes a discarded value, which is neither object nor array.
/// `why`, unless null, gets the error's message.
Json parse_json(std::string_view words, std::string* why = nullptr);

/// A finite number with the fewest digits that are read back as `value`, and at least one of them after the point; with
/// an exponent of at least two digits below 1e-4, and where more than `most_whole_digits` would stand before the point.
std::string real_text(double value, int most_whole_digits);

/// `words` as a JSON text with its quotes, as Json::dump writes it.
std::string json_quoted(std::string_view words);

template <class T>
T Json::get() const {
  if constexpr (std::is_same_v<T, Json>) {
    return *this;
  } else if constexpr (std::is_same_v<T, bool>) {
    return boolean();
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number());
  } else if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(whole_between(Limits::min(), Limits::max()));
    else
      return static_cast<T>(whole_up_to(Limits::max()));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return string();
  } else if constexpr (requires { typename T::first_type; }) {
    if (!is_array() || size() != 2) refuse("a pair");
    return {at(0).get<typename T::first_type>(), at(1).get<typename T::second_type>()};
  } else if constexpr (requires { typename T::mapped_type; }) {
    if (!is_object()) refuse("an object");
    T all;
    for (const auto& [name, value] : items()) all.emplace(name, value.template get<typename T::mapped_type>());
    return all;
  } else {
    if (!is_array()) refuse("a list");
    T all{};
    if constexpr (requires(typename T::value_type item) { all.insert(all.end(), item); }) {
      for (const auto& item : *this) all.insert(all.end(), item.get<typename T::value_type>());
    } else {
      if (size() != all.size()) refuse("a list of another length");
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = at(i).get<typename T::value_type>();
    }
    return all;
  }
}

}  // namespace tessera
