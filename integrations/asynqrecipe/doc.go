// Package asynqrecipe holds the test of a recipe: one of several schedulers of asynq
// enqueues the tasks. There is nothing to import.
package asynqrecipe
