// All families of operators. Only includes.
#pragma once

#include "operators/cast.h"
#include "operators/custom.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_custom.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/loss.h"
#include "operators/matmul.h"
#include "operators/operator.h"
#include "operators/random.h"
#include "operators/reduce.h"
#include "operators/scan.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/softmax.h"
#include "operators/sorting.h"
