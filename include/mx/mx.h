// Everything that is public. Only includes.
#pragma once

#include "mx/engine.h"
#include "ndarray/dlpack.h"
#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "operators/operators.h"
#include "operators/scratch.h"
#include "optim/loss_scale.h"
#include "optim/optimizers.h"
#include "optim/plateau.h"
#include "optim/schedule.h"
#include "optim/update.h"
