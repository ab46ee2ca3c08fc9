#include "framework/tensor/weight_part.h"

namespace tessera {

Shape WeightPart::shape() const {
  must(!boxes.empty(), "a part of a weight has boxes");
  auto extent = boxes[0].extent;
  for (std::size_t i = 1; i < boxes.size(); ++i) extent[0] += boxes[i].extent[0];
  return global_shape.rank() == 0 ? Shape{} : Shape(extent);
}

}  // namespace tessera
