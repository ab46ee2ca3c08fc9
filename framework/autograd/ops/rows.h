#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

// Rows of activations as wholes; a row is the last dimension.

/// y [1, n / count, count * width] = the rows of x [1, n, width], each `count` of them joined to one. A view: no
/// element is copied. Throws ShapeError if `count` does not divide n.
Var joined_rows(const Var& x, std::int64_t count);

/// A row of `x` that is replaced by a row of another value.
struct RowPlace {
  std::int64_t to = 0;    ///< row of x, counted over all dimensions but the last
  std::int64_t from = 0;  ///< row of the other value
};

/// y = x, in which some rows are those of `rows`.
///
///   x        [.., width]   changed in place if no other handle refers to it
///   rows     [.., width]   of the same type
///   places                 each row of x at most once; must stay unchanged until the backward pass is done
///
/// The gradient of a replaced row goes to `rows` and not to x; a row of `rows` without a place has gradient 0. Keeps
/// nothing else. Throws ShapeError for another width or a place outside; BugError for another type.
Var replaced_rows(Var x, const Var& rows, std::span<const RowPlace> places);

/// The elements of x rounded to `type`, and the gradient rounded to the type of x; x itself if it has this type.
Var converted(Var x, DType type);

}  // namespace tessera::autograd
