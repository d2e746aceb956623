// Everything that is public. Only includes.
#pragma once

#include "mx/engine.h"
#include "ndarray/ndarray.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/operator.h"
