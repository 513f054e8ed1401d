"""`headrace work`: an application's handlers and workers in processes, as many as its backlog needs."""
