// How many elements a thread of an element-wise kernel takes, a block apart: one, unless it is compiled with another
// number of them (stages/engine/launch_shapes.py).
#pragma once

#ifndef ELEMENTS
#define ELEMENTS 1
#endif
