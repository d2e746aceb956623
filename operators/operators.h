// All families of operators. Only includes.
#pragma once

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/operator.h"
#include "operators/random.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"
